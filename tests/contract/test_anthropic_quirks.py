"""What networks and servers do to the Anthropic adapter: one test a quirk.

What both providers' adapters share (`provider_http`) is tested in `test_model_quirks` too, whose
cases are repeated here only where this SDK stands between the network and us.
"""

import asyncio
import gzip
import hashlib
import inspect
import json
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace

import anthropic
import anyio
import httpx2
import pytest
from anthropic import _exceptions as sdk_errors

from tests.contract.test_model_quirks import TRANSPORT_CLASSES
from tests.helpers.foreign_server import EVENTS, Answer, begun, fixed, foreign_server
from tests.helpers.messages_server import event, messages_server
from tests.helpers.model_messages import ANTHROPIC, CLI, answer, call, request_of, result, user
from tests.helpers.wire_validators import validate_messages
from threadlog import limits
from threadlog.adapters.model_api.anthropic_failures import FOREIGN_ERRORS, failure_of_exception
from threadlog.adapters.model_api.anthropic_model import AnthropicModel, list_models
from threadlog.adapters.model_api.script import parse_script
from threadlog.errors import LateError, ModelError, UsageError
from threadlog.events.content import NativePart, TextPart, Usage
from threadlog.ports.model import Delta, ModelReply, ModelRequest

KEY = "plain0123456789abcdef"  # nothing about it looks like a key
ASK = request_of(user("?"), model=ANTHROPIC)
USAGE = {"input_tokens": 3, "output_tokens": 1}
START = event("message_start", message={"model": "claude-real", "content": [], "usage": USAGE})
TEXT = (
    event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    + event("content_block_delta", index=0, delta={"type": "text_delta", "text": "hi"})
    + event("content_block_stop", index=0)
)
END = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 4})
STOP = event("message_stop")
WHOLE = START + TEXT + END + STOP
ERROR = {"type": "overloaded_error", "message": "Overloaded"}
BUSY = json.dumps({"type": "error", "error": ERROR}).encode()


async def ask_at(
    url: str,
    request: ModelRequest = ASK,
    *,
    on_delta: Callable[[Delta], None] = lambda delta: None,
    idle_ms: int = 5_000,
    total_ms: int = 10_000,
) -> ModelReply:
    model = AnthropicModel(base_url=url, api_key=KEY, idle_ms=idle_ms, total_ms=total_ms)
    try:
        return await model.send(model.render(request), on_delta)
    finally:
        await model.aclose()


async def reply_to(body: bytes) -> ModelReply:
    async with foreign_server(fixed(200, body, EVENTS)) as server:
        return await ask_at(server.url)


async def failure_of(answer: Answer, *, idle_ms: int = 5_000, total_ms: int = 10_000) -> ModelError:
    """The failure, after one request; on a slow machine time may be up before it is read."""
    async with foreign_server(answer) as server:
        with pytest.raises(ModelError) as failure:
            await ask_at(server.url, idle_ms=idle_ms, total_ms=total_ms)
        assert len(server.received) <= 1, "a request is never repeated inside"
    assert KEY not in str(failure.value)
    return failure.value


async def test_law_3_no_byte_of_a_late_request_leaves() -> None:
    """The claim may grow old while the connection is set up."""
    async with foreign_server(fixed(200, WHOLE, EVENTS)) as server:
        asked: list[int] = []

        def may_start() -> bool:
            asked.append(server.connections)
            return False

        model = AnthropicModel(base_url=server.url, api_key=KEY, idle_ms=5_000, total_ms=10_000)
        try:
            with pytest.raises(LateError):
                await model.send(model.render(ASK), lambda delta: None, may_start=may_start)
        finally:
            await model.aclose()
        async with asyncio.timeout(10):
            await server.left.wait()
        assert asked == [1], "asked once, when the connection stood"
        assert server.received == []


async def test_a_failure_that_the_caller_is_handling_is_not_taken_for_this_one() -> None:
    cut = fixed(200, START + TEXT, EVENTS, missing_bytes=50)
    try:
        raise ModelError("an earlier one", error_class="rate_limited", retryable=False)
    except ModelError:
        failure = await failure_of(cut)
    assert (failure.error_class, failure.retryable) == ("cut_stream", True)


async def test_a_refused_connection_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ModelError, match="ANTHROPIC_BASE_URL") as failure:
        await ask_at(f"http://127.0.0.1:{port}")
    assert (failure.value.error_class, failure.value.retryable) == ("connection", True)


async def test_the_bytes_sent_are_the_bytes_rendered() -> None:
    one = call(1, '{"command": "l')
    messages = (user("Grüße 🎉"), answer("", "anthropic", one), result(one, "ok"))
    spaced = replace(CLI, parameters='{ "type": "object" , "properties": {} }')
    request = replace(request_of(*messages, model=ANTHROPIC), tools=(spaced,))
    async with foreign_server(fixed(200, WHOLE, EVENTS)) as server:
        model = AnthropicModel(base_url=server.url.removesuffix("/v1"), api_key=KEY)
        body = model.render(request)
        reply = await model.send(body, lambda delta: None)
        await model.aclose()
    received = server.received[0]
    assert hashlib.sha256(received.body).digest() == hashlib.sha256(body).digest()
    assert received.target == "/v1/messages"
    assert received.headers["content-type"] == "application/json"
    assert received.headers["anthropic-version"]
    sent = f"{received.headers.get('x-api-key')} {received.headers.get('authorization')}"
    assert KEY in sent, "in the header that the SDK chooses"
    assert reply.content == (TextPart(text="hi"),)
    validate_messages(received.body)


async def test_without_a_key_the_sdk_looks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    async with foreign_server(fixed(200, WHOLE, EVENTS)) as server:
        model = AnthropicModel(base_url=server.url)
        await model.send(model.render(ASK), lambda delta: None)
        await model.aclose()
    assert KEY not in str(server.received[0].headers)


async def test_the_connection_is_kept_for_the_next_request() -> None:
    async with foreign_server(fixed(200, WHOLE, EVENTS)) as server:
        model = AnthropicModel(base_url=server.url)
        for _ in range(3):
            await model.send(model.render(ASK), lambda delta: None)
        await model.aclose()
    assert (len(server.received), server.connections) == (3, 1)


async def test_an_error_event_in_mid_stream_has_the_class_of_its_type() -> None:
    failure = await failure_of(fixed(200, START + TEXT + event("error", error=ERROR), EVENTS))
    assert (failure.error_class, failure.retryable) == ("overloaded", True)
    assert "Overloaded" in str(failure)


async def test_pings_and_unknown_events_are_passed_over() -> None:
    odd = event("ping") + event("message_weighed", weight={"grams": 5}) + b"event: naked\n\n"
    reply = await reply_to(odd + START + odd + TEXT + odd + END + odd + STOP)
    assert (reply.content, reply.stop) == ((TextPart(text="hi"),), "end")


async def test_an_unknown_block_is_kept_to_the_byte_and_goes_back_so() -> None:
    block = '{ "type":"quantum_result", "x": [1.50, "\\u00e9"],\n"content":{"a" :1}}'
    begun_so = b'event: content_block_start\ndata: {"index":1 ,"content_block": %b, ' % (
        block.replace("\n", " ").encode()
    )
    kept = block.replace("\n", " ")
    reply = await reply_to(START + TEXT + begun_so + b'"type":"content_block_start"}\n\n' + END)
    assert reply.content == (
        TextPart(text="hi"),
        NativePart(provider="anthropic", json_text=kept),
    )
    model = AnthropicModel()
    again = replace(answer("", "anthropic"), parts=reply.content)
    body = model.render(request_of(user("?"), again, user("go"), model=ANTHROPIC))
    await model.aclose()
    assert kept.encode() in body


async def test_a_reply_without_usage_counts() -> None:
    start = event("message_start", message={"content": []})
    reply = await reply_to(start + TEXT + event("message_delta", delta={"stop_reason": "end_turn"}))
    assert (reply.usage, reply.model.name) == (None, "claude-test")


async def test_the_later_usage_holds_and_what_it_leaves_out_stays() -> None:
    reply = await reply_to(WHOLE)
    assert reply.usage == Usage(input=3, output=4)
    assert reply.model.name == "claude-real"


async def test_L6_a_cut_stream_is_tried_again() -> None:
    failure = await failure_of(fixed(200, START + TEXT, EVENTS, missing_bytes=50))
    assert (failure.error_class, failure.retryable) == ("cut_stream", True)


async def test_L6_a_stream_that_ends_too_early_is_tried_again() -> None:
    failure = await failure_of(fixed(200, START + TEXT, EVENTS))
    assert (failure.error_class, failure.retryable) == ("cut_stream", True)


async def test_a_reply_that_was_complete_when_the_connection_broke_counts() -> None:
    async with foreign_server(fixed(200, START + TEXT + END, EVENTS, missing_bytes=50)) as server:
        assert (await ask_at(server.url)).stop == "end"


async def test_a_complete_reply_does_not_wait_for_a_server_that_never_ends_it() -> None:
    async with foreign_server(begun(WHOLE)) as server:
        reply = await asyncio.wait_for(ask_at(server.url, idle_ms=60_000, total_ms=60_000), 5)
    assert reply.content == (TextPart(text="hi"),)


@pytest.mark.parametrize("body", [b"", START + TEXT], ids=["headers only", "in mid-stream"])
async def test_L6_a_silent_stream_is_idle(body: bytes) -> None:
    failure = await failure_of(begun(body), idle_ms=50)
    assert (failure.error_class, failure.retryable) == ("idle", True)


async def test_pings_alone_do_not_keep_a_request_for_ever() -> None:
    async def trickle(writer: asyncio.StreamWriter) -> None:
        await begun(START)(writer)
        while True:
            writer.write(event("ping"))
            await writer.drain()
            await asyncio.sleep(0.01)

    failure = await failure_of(trickle, total_ms=300)
    assert (failure.error_class, failure.retryable) == ("timeout", True)


async def test_L6_an_overloaded_provider_says_when_to_come_back() -> None:
    failure = await failure_of(fixed(529, BUSY, {"retry-after": "7"}))
    assert (failure.error_class, failure.retryable) == ("overloaded", True)
    assert failure.retry_after_ms == 7_000


async def test_C66_a_wish_to_wait_for_30_years_is_capped() -> None:
    failure = await failure_of(fixed(429, b"slow down", {"retry-after": "1e9"}))
    assert failure.retry_after_ms == limits.RETRY_CAP_MS


@pytest.mark.parametrize(
    ("status", "kind", "message", "error_class", "retryable"),
    [
        (400, "invalid_request_error", "max_tokens: wrong", "bad_request", False),
        (400, "invalid_request_error", "prompt is too long: 9 > 8", "context_overflow", False),
        (400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 9",
         "context_overflow", False),
        (401, "authentication_error", "invalid x-api-key", "unauthenticated", False),
        (403, "permission_error", "no", "unauthenticated", False),
        (404, "not_found_error", "model: x", "not_found", False),
        (413, "request_too_large", "too large", "context_overflow", False),
        (429, "rate_limit_error", "slow", "rate_limited", True),
        (500, "api_error", "oh", "internal", True),
        (500, "overloaded_error", "busy", "overloaded", True),
        (504, "timeout_error", "late", "timeout", True),
        (529, "overloaded_error", "busy", "overloaded", True),
    ],
)  # fmt: skip
async def test_L6_errors_have_their_class_by_status_and_type(
    status: int, kind: str, message: str, error_class: str, retryable: bool
) -> None:
    error = {"type": kind, "message": message}
    body = json.dumps({"type": "error", "error": error}).encode()
    failure = await failure_of(fixed(status, body))
    assert (failure.error_class, failure.retryable) == (error_class, retryable)
    within = await failure_of(fixed(200, START + event("error", error=error), EVENTS))
    assert (within.error_class, within.retryable) == (error_class, retryable)
    assert "OPENAI" not in str(failure) + str(within)


async def test_a_spent_quota_is_not_tried_again() -> None:
    error = {"type": "rate_limit_error", "message": "spent"}
    error |= {"details": {"error_code": "enforced_spend_limit_reached"}}  # type: ignore[dict-item]  # nested as the provider nests it
    failure = await failure_of(fixed(429, json.dumps({"type": "error", "error": error}).encode()))
    assert (failure.error_class, failure.retryable) == ("rate_limited", False)


@pytest.mark.parametrize(
    ("status", "advice"), [(401, "ANTHROPIC_API_KEY"), (404, "has no /v1 at its end")]
)
async def test_failures_as_text_say_what_to_do(status: int, advice: str) -> None:
    async with foreign_server(fixed(status, b"404 page not found")) as server:
        with pytest.raises(ModelError, match=advice):
            await ask_at(server.url)
        with pytest.raises(ModelError, match=advice):
            await list_models(server.url, KEY)


async def test_C66_a_web_page_with_status_200_is_malformed() -> None:
    failure = await failure_of(fixed(200, b"<!doctype html><title>Log in</title>"))
    assert (failure.error_class, failure.retryable) == ("malformed", True)
    assert "ANTHROPIC_BASE_URL" in str(failure)


@pytest.mark.parametrize("body", [b"", START + END + STOP], ids=["nothing", "no content"])
async def test_an_empty_reply_is_tried_again(body: bytes) -> None:
    failure = await failure_of(fixed(200, body, EVENTS))
    assert (failure.error_class, failure.retryable) == ("empty", True)


async def test_a_redirect_is_not_followed() -> None:
    failure = await failure_of(fixed(307, b"", {"location": "http://elsewhere.invalid"}))
    assert (failure.error_class, failure.retryable) == ("bad_request", False)
    assert "elsewhere.invalid" in str(failure)


async def test_the_key_is_not_repeated_even_when_the_server_does() -> None:
    for status in (400, 401, 403, 500):
        failure = await failure_of(fixed(status, f"your key {KEY} is odd".encode()))
        assert "0123456789" not in str(failure)


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("content", [b" ", b"\n", b"x", b"data: {}\n\n"])
async def test_C66_a_compressed_bomb_is_cut_at_the_decoded_size_cap(
    status: int, content: bytes
) -> None:
    bomb = gzip.compress(content * (64 * limits.MIB // len(content)), compresslevel=1)
    failure = await failure_of(fixed(status, bomb, EVENTS | {"content-encoding": "gzip"}))
    assert failure.error_class == ("too_large" if status == 200 else "internal")


async def test_broken_compression_is_malformed() -> None:
    failure = await failure_of(fixed(200, b"not gzip at all", {"content-encoding": "gzip"}))
    assert (failure.error_class, failure.retryable) == ("malformed", True)


@pytest.mark.parametrize("body", [None, b"", START + TEXT], ids=["before", "headers", "stream"])
async def test_cancelling_closes_the_connection(body: bytes | None) -> None:
    async def silence(writer: asyncio.StreamWriter) -> None:
        return None

    async with foreign_server(silence if body is None else begun(body)) as server:
        task = asyncio.create_task(ask_at(server.url))
        await server.answering.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.left.wait(), 5)


async def test_the_strict_server_refuses_what_the_provider_refuses() -> None:
    async with messages_server(parse_script('[{"text": "hi"}]')) as server:
        model = AnthropicModel(base_url=server.url)
        body = model.render(ASK)
        with pytest.raises(ModelError, match="roles do not alternate"):
            await model.send(body.replace(b'"user"', b'"assistant"'), lambda delta: None)
        assert (await model.send(body, lambda delta: None)).content == (TextPart(text="hi"),)
        await model.aclose()


def test_an_address_and_a_key_that_are_none_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="ANTHROPIC_BASE_URL"):
        AnthropicModel(base_url="ftp://x")
    with pytest.raises(UsageError, match="ANTHROPIC_API_KEY") as refusal:
        AnthropicModel(api_key="clé")
    assert "clé" not in str(refusal.value)


REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1", headers={"authorization": f"Bearer {KEY}"})
SDK_CLASSES = {
    "APIConnectionError": "connection",
    "APIError": "internal",
    "APIResponseValidationError": "malformed",
    "APIStatusError": "bad_request",
    "APITimeoutError": "connection",
    "APIWebhookValidationError": "malformed",
    "AnthropicError": "unauthenticated",
    "AuthenticationError": "unauthenticated",
    "BadRequestError": "bad_request",
    "ClientClosedRequestError": "bad_request",
    "ConflictError": "overloaded",
    "ContentTooLargeError": "context_overflow",
    "CredentialsError": "unauthenticated",
    "DeadlineExceededError": "overloaded",
    "GatewayTimeoutError": "overloaded",
    "HTTPNotImplementedError": "internal",
    "IdentityTokenFileError": "unauthenticated",
    "InternalServerError": "internal",
    "NotFoundError": "not_found",
    "OverloadedError": "overloaded",
    "PaymentRequiredError": "refused",
    "PermissionDeniedError": "unauthenticated",
    "PreconditionFailedError": "bad_request",
    "RateLimitError": "rate_limited",
    "RequestHeaderFieldsTooLargeError": "bad_request",
    "RequestTimeoutError": "timeout",
    "RequestTooLargeError": "context_overflow",
    "RetryableError": "connection",
    "ServiceUnavailableError": "overloaded",
    "UnprocessableEntityError": "bad_request",
}
STATUSES = {
    "AuthenticationError": 401,
    "PaymentRequiredError": 402,
    "PermissionDeniedError": 403,
    "NotFoundError": 404,
    "RequestTimeoutError": 408,
    "ConflictError": 409,
    "PreconditionFailedError": 412,
    "ContentTooLargeError": 413,
    "RequestTooLargeError": 413,
    "UnprocessableEntityError": 422,
    "RateLimitError": 429,
    "RequestHeaderFieldsTooLargeError": 431,
    "ClientClosedRequestError": 499,
    "InternalServerError": 500,
    "HTTPNotImplementedError": 501,
    "ServiceUnavailableError": 503,
    "GatewayTimeoutError": 504,
    "DeadlineExceededError": 504,
    "OverloadedError": 529,
}


def made(kind: type[Exception]) -> Exception:
    """An instance, as the SDK would make it: by what its constructor asks for."""
    response = httpx2.Response(STATUSES.get(kind.__name__, 400), text=KEY, request=REQUEST)
    values: dict[str, object] = {
        "message": KEY,
        "request": REQUEST,
        "response": response,
        "body": KEY,
    }
    parameters = inspect.signature(kind.__init__).parameters.values()
    return kind(**{p.name: values[p.name] for p in parameters if p.name in values})


def test_L6_every_error_of_the_sdk_has_its_class() -> None:
    found = {
        name: value
        for name, value in vars(sdk_errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    }
    assert set(found) == set(SDK_CLASSES), "the SDK has other errors now"
    for name, expected in SDK_CLASSES.items():
        error = made(found[name])
        assert isinstance(error, FOREIGN_ERRORS)
        failure = failure_of_exception(error, now_ms=0)
        assert failure.error_class == expected, name
        # What a server says is freed of the key where the key is known, see the test above.
        assert KEY not in str(failure) or isinstance(error, anthropic.APIError)


def test_L6_every_error_of_the_http_client_has_its_class_before_and_within_the_reply() -> None:
    instances = {name: getattr(httpx2, name).__new__(getattr(httpx2, name), KEY)
                 for name in TRANSPORT_CLASSES}  # fmt: skip
    instances |= {"ssl": ssl.SSLError(KEY), "end": anyio.EndOfStream(KEY)}
    expected = TRANSPORT_CLASSES | dict.fromkeys(("ssl", "end"), ("connection", "cut_stream"))
    for name, error in instances.items():
        wrapped = anthropic.APIConnectionError(request=REQUEST)
        wrapped.__cause__ = error
        failures = [failure_of_exception(e, now_ms=0) for e in (wrapped, error)]
        assert tuple(f.error_class for f in failures) == expected[name], name
        assert not any(KEY in str(failure) for failure in failures)


async def test_nothing_is_logged_that_holds_the_key_or_the_prompt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = replace(ASK, system_prompt="the secret prompt")
    async with foreign_server(fixed(200, WHOLE, EVENTS)) as server:
        await ask_at(server.url, secret)
    await failure_of(fixed(400, f"your key {KEY} is odd".encode()))
    assert KEY not in caplog.text
    assert "secret prompt" not in caplog.text
