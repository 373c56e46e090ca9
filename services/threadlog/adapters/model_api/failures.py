"""What a provider's refusal means: which class it is, whether to try again, and what to do.

Pure. A worker acts on the class and on `retryable` alone; the text is for the person, says what to
do, and never repeats what looks like a key.
"""

import email.utils
import math
import re
from collections.abc import Mapping

import orjson

from threadlog import limits
from threadlog.adapters.model_api.providers import ProviderFacts
from threadlog.errors import ModelError
from threadlog.events.step import ErrorClass

_DETAIL_CHARS_MAX = 400
_SECRET = re.compile(
    r"(?i)\b(?:bearer\s+\S+|(?:sk|pk|gsk|xai|key|rk)[-_][\w*.-]{4,}|AIza[\w-]{8,})|(?<=//)[^/\s@]+(?=@)"
)
_TOO_LONG = re.compile(
    r"(?i)context.{0,3}(?:length|window|size|limit)|maximum context|prompt is too long"
    r"|too many tokens|reduce the length|input is too long"
    r"|exceed\w* the (?:model's )?max\w* (?:input|prompt)"
)
_OTHER_4XX: tuple[ErrorClass, bool, str] = (
    "bad_request",
    False,
    "the provider refused the request",
)
_OTHER_5XX: tuple[ErrorClass, bool, str] = ("internal", True, "the provider failed")
_BUSY: tuple[ErrorClass, bool, str] = ("overloaded", True, "the provider is overloaded or away")
_SPENT: tuple[ErrorClass, bool, str] = (
    "rate_limited",
    False,
    "the quota is used up: check the provider's plan",
)
_BY_STATUS: dict[int, tuple[ErrorClass, bool, str]] = {
    401: ("unauthenticated", False, "the provider refused the key: set {key_name}"),
    402: ("refused", False, "the provider wants to be paid: check the balance there"),
    403: ("unauthenticated", False, "the key may not do this: check what {key_name} allows"),
    404: (
        "not_found",
        False,
        "no such model or address: check the model's name and {url_name}, which {url_end}",
    ),
    408: ("timeout", True, "the provider gave up waiting"),
    409: _BUSY,
    413: ("context_overflow", False, "the request is larger than the provider takes"),
    425: _BUSY,
    429: ("rate_limited", True, "the provider limits the rate"),
    502: _BUSY,
    503: _BUSY,
    504: _BUSY,
    529: _BUSY,
}
_BY_CODE: dict[str, tuple[ErrorClass, bool, str]] = {
    "context_length_exceeded": ("context_overflow", False, "the prompt is too long for the model"),
    "exceed_context_size_error": (
        "context_overflow",
        False,
        "the prompt is too long for the model",
    ),
    "content_filter": ("refused", False, "the provider's content filter refused the request"),
    "content_policy_violation": ("refused", False, "the provider's policy refused the request"),
    "insufficient_quota": _SPENT,
    "contract_spend_limit_reached": _SPENT,
    "enforced_spend_limit_reached": _SPENT,
    "script_exhausted": ("script_exhausted", False, "the script has no further reply"),
}


def failure_of_status(
    status: int, body: str, headers: Mapping[str, str], now_ms: int, facts: ProviderFacts
) -> ModelError:
    """The failure that an HTTP status other than 2xx means.

    Units:   `now_ms` wall clock, for a Retry-After that is a date.
    """
    code, detail = _code_and_message(_parsed(body))
    error_class, retryable, advice = _verdict(status, code, detail or body, facts)
    if status // 100 == 3:  # noqa: PLR2004 # a redirect is no place to send a key to
        advice = f"the address moved to {headers.get('location', 'nowhere')}: set {facts.url_name}"
    if status == 401:  # noqa: PLR2004 # its text names the key, in part
        detail = ""
    elif not detail:
        detail = "" if body.lstrip().startswith("<") else body
    return ModelError(
        f"{advice} (HTTP {status}{_said(detail)})",
        error_class=error_class,
        retryable=retryable,
        retry_after_ms=retry_after_ms(headers, now_ms) if retryable else None,
    )


def failure_of_error(error: object, facts: ProviderFacts) -> ModelError:
    """The failure that an error object within a stream that began well means."""
    code, detail = _code_and_message(error)
    status = int(code) if code.isdigit() and len(code) == 3 else 500  # noqa: PLR2004 # HTTP's digits
    error_class, retryable, advice = _verdict(status, code, detail, facts)
    return ModelError(
        f"{advice} (while it answered{_said(detail)})",
        error_class=error_class,
        retryable=retryable,
    )


def malformed(finding: str) -> ModelError:
    """What came is not a reply of this wire form; another try may bring one."""
    return ModelError(finding, error_class="malformed", retryable=True)


def too_large(finding: str) -> ModelError:
    """The reply was cut at a bound; the same request would cost as much again."""
    return ModelError(finding, error_class="too_large", retryable=False)


def retry_after_ms(headers: Mapping[str, str], now_ms: int) -> int | None:
    """How long the provider asks to wait, at most `limits.RETRY_CAP_MS`; None: it does not say."""
    for name, scale in (("retry-after-ms", 1), ("retry-after", 1_000)):
        try:
            wish = float(headers.get(name, "")) * scale
        except ValueError:
            continue
        if not math.isnan(wish):
            return int(min(max(wish, 0), limits.RETRY_CAP_MS))
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        due_ms = int(date.timestamp() * 1_000)
    except (ValueError, OverflowError):
        return None
    return min(max(due_ms - now_ms, 0), limits.RETRY_CAP_MS)


def without_secrets(text: str, key: str | None = None) -> str:
    """`text` with the key, and all that looks like one, replaced by stars."""
    return _SECRET.sub("***", text.replace(key, "***") if key else text)


def _verdict(
    status: int, code: str, detail: str, facts: ProviderFacts
) -> tuple[ErrorClass, bool, str]:
    if code in _BY_CODE:
        return _BY_CODE[code]
    if status in (400, 500, 504):  # all others say more than a type does
        status = facts.status_of_type.get(code, status)
    if status in (400, 422, 500) and _TOO_LONG.search(detail[:4_096]):
        return _BY_CODE["context_length_exceeded"]
    other = _OTHER_5XX if status >= 500 else _OTHER_4XX  # noqa: PLR2004 # HTTP's classes
    error_class, retryable, advice = _BY_STATUS.get(status, other)
    names = {"key_name": facts.key_name, "url_name": facts.url_name, "url_end": facts.url_end}
    return error_class, retryable, advice.format_map(names)


def _parsed(body: str) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _code_and_message(body: object) -> tuple[str, str]:
    """The error's code (else its type) and message, wherever servers put them."""
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, dict) and body.get("error"):
        body = body["error"]
    if isinstance(body, str):
        return "", body
    if not isinstance(body, dict):
        return "", ""
    codes = [str(body[name]) for name in ("code", "type") if isinstance(body.get(name), str | int)]
    details = body.get("details")
    if isinstance(details, dict) and isinstance(details.get("error_code"), str):
        codes.append(details["error_code"])
    known = [code for code in codes if code in _BY_CODE]
    message = body.get("message") or body.get("detail")
    return (known or codes or [""])[0], message if isinstance(message, str) else ""


def _said(detail: str) -> str:
    text = without_secrets(" ".join(detail.split()))
    return f": {text[:_DETAIL_CHARS_MAX]}" if text else ""
