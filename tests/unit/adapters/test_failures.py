"""What a provider's refusal means to a worker, and that its text advises and holds no key."""

import pytest

from threadlog import limits
from threadlog.adapters.model_api.failures import (
    failure_of_error,
    failure_of_status,
    retry_after_ms,
    without_secrets,
)
from threadlog.adapters.model_api.providers import OPENAI

NOW_MS = 1_790_000_000_000


@pytest.mark.parametrize(
    ("status", "body", "error_class", "retryable"),
    [
        (302, "", "bad_request", False),
        (400, '{"error":{"message":"bad"}}', "bad_request", False),
        (400, '{"error":{"code":"context_length_exceeded"}}', "context_overflow", False),
        (400, '{"error":{"message":"maximum context length is 9"}}', "context_overflow", False),
        (400, '{"detail":"Prompt is too long"}', "context_overflow", False),
        (400, '{"error":{"type":"exceed_context_size_error"}}', "context_overflow", False),
        (400, '{"error":{"code":"script_exhausted"}}', "script_exhausted", False),
        (400, '{"error":{"code":"content_filter"}}', "refused", False),
        (401, "Unauthorized", "unauthenticated", False),
        (402, "", "refused", False),
        (403, "<html>", "unauthenticated", False),
        (404, "404 page not found", "not_found", False),
        (408, "", "timeout", True),
        (409, "", "overloaded", True),
        (413, "", "context_overflow", False),
        (418, "", "bad_request", False),
        (422, '[{"error":"x"}]', "bad_request", False),
        (425, "", "overloaded", True),
        (429, '{"error":{"message":"slow"}}', "rate_limited", True),
        (429, '{"error":{"code":"insufficient_quota"}}', "rate_limited", False),
        (500, "{not json", "internal", True),
        (502, "<html>bad gateway</html>", "overloaded", True),
        (503, "", "overloaded", True),
        (529, "", "overloaded", True),
        (599, "", "internal", True),
    ],
)
def test_L6_every_status_has_its_class(
    status: int, body: str, error_class: str, retryable: bool
) -> None:
    failure = failure_of_status(status, body, {}, NOW_MS, OPENAI)
    assert (failure.error_class, failure.retryable) == (error_class, retryable)
    assert f"HTTP {status}" in str(failure)
    assert "<" not in str(failure)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3_000),
        ({"retry-after": "0.25"}, 250),
        ({"retry-after-ms": "40", "retry-after": "9"}, 40),
        ({"retry-after": "1e9"}, limits.RETRY_CAP_MS),
        ({"retry-after": "1e999"}, limits.RETRY_CAP_MS),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Mon, 21 Sep 2026 14:13:30 GMT"}, 10_000),
        ({"retry-after": "Mon, 21 Sep 2026 14:13:00 GMT"}, 0),
        ({"retry-after": "Tue, 21 Sep 2027 14:13:00 GMT"}, limits.RETRY_CAP_MS),
        ({"retry-after": "Mon, 99 Sep 2026 14:13:00 GMT"}, None),
    ],
)
def test_C66_the_wish_to_wait_is_read_and_capped(
    headers: dict[str, str], expected: int | None
) -> None:
    assert retry_after_ms(headers, NOW_MS) == expected
    assert failure_of_status(429, "", headers, NOW_MS, OPENAI).retry_after_ms == expected
    assert failure_of_status(401, "", headers, NOW_MS, OPENAI).retry_after_ms is None


@pytest.mark.parametrize(
    ("status", "advice"),
    [(401, "OPENAI_API_KEY"), (403, "OPENAI_API_KEY"), (404, "OPENAI_BASE_URL"), (301, "moved to")],
)
def test_the_text_says_what_to_do(status: int, advice: str) -> None:
    assert advice in str(failure_of_status(status, "", {}, NOW_MS, OPENAI))


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect key sk-proj-abcdefgh***wxyz given",
        "sent Bearer abc.def",
        "gsk_abcdefgh",
        "http://me:secret@host/v1",
    ],
)
def test_what_looks_like_a_key_is_not_repeated(text: str) -> None:
    body = '{"error":{"message":"' + text + '"}}'
    for shown in (
        str(failure_of_status(400, body, {}, NOW_MS, OPENAI)),
        str(failure_of_error({"message": text}, OPENAI)),
        without_secrets(text),
    ):
        assert "***" in shown
        assert not any(secret in shown for secret in ("abc", "secret", "wxyz"))


def test_the_text_of_a_401_is_not_repeated_for_it_names_the_key_in_part() -> None:
    body = '{"error":{"message":"your key that ends in wxyz is wrong"}}'
    assert "wxyz" not in str(failure_of_status(401, body, {}, NOW_MS, OPENAI))
    assert "wxyz" in str(failure_of_status(403, body, {}, NOW_MS, OPENAI))


def test_a_key_is_hidden_whatever_it_looks_like() -> None:
    assert without_secrets("key=hunter2!", "hunter2!") == "key=***"


def test_long_texts_are_cut() -> None:
    body = '{"error":{"message":"' + "x" * 10_000 + '"}}'
    assert len(str(failure_of_status(400, body, {}, NOW_MS, OPENAI))) < 2_000
    assert len(str(failure_of_status(400, "y" * 10_000, {}, NOW_MS, OPENAI))) < 2_000


@pytest.mark.parametrize("error", [None, 7, [], {}, {"code": None, "message": 3}])
def test_an_error_that_says_nothing_is_the_providers_own(error: object) -> None:
    failure = failure_of_error(error, OPENAI)
    assert (failure.error_class, failure.retryable) == ("internal", True)
