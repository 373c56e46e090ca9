"""Errors of ours as problems on the wire (RFC 9457), and back. Pure.

A problem names what is wrong and never repeats what was sent. `PROBLEMS` is the whole list; the
page docs/problems.md is written from it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict

from threadlog.errors import (
    ConflictError,
    CorruptError,
    CursorUnknownError,
    QuotaError,
    RejectedError,
    ThreadlogError,
    TransientError,
)

PROBLEM_TYPE = "application/problem+json"
_URN = "urn:threadlog:problem:"


class FieldProblem(BaseModel):
    """What is wrong with one member, parameter or header; `field` is its path."""

    model_config = ConfigDict(frozen=True, strict=True)

    field: str
    message: str


class ProblemBody(BaseModel):
    """What went wrong (RFC 9457).

    `code` is stable; `retryable`: the same request may work later. `instance` and `trace_id` name
    the request where it came with a `traceparent`. `limit` names the limit of a 429, `oldest_seq`
    and `head_seq` say what can be read instead of an unknown cursor.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    code: str
    retryable: bool
    trace_id: str | None = None
    errors: tuple[FieldProblem, ...] = ()
    limit: str | None = None
    oldest_seq: int | None = None
    head_seq: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """One kind of problem: its status, its title, and when it is the answer."""

    status: int
    title: str
    meaning: str
    retryable: bool = False


PROBLEMS: Final[Mapping[str, Problem]] = {
    "invalid_request": Problem(400, "Invalid request", "something that was sent does not fit"),
    "usage": Problem(400, "Invalid request", "a setting or argument of a command is wrong"),
    "cursor_invalid": Problem(400, "Invalid cursor", "a cursor, page token or receipt of nobody"),
    "unauthenticated": Problem(401, "Not authenticated", "no key, or none that is valid"),
    "scope_missing": Problem(403, "Not allowed", "the key is valid and lacks the scope named"),
    "denied": Problem(403, "Not allowed", "the gateway does not allow it, whatever the key"),
    "refused": Problem(
        503, "Not available", "the gateway must not serve it as things are: see its log"
    ),
    "not_found": Problem(404, "Not found", "absent, or another tenant's: the answer is the same"),
    "method_not_allowed": Problem(405, "Method not allowed", "the path takes another method"),
    "body_timeout": Problem(408, "Too slow", "the request did not arrive in time"),
    "turn_open": Problem(
        409,
        "A turn is open",
        "`reject` met an open turn or a queued message; where `detail` says that the message was "
        "judged, it is in the log as void, and only a new key sends it again",
    ),
    "thread_newer": Problem(
        409, "Newer thread", "a newer version stopped the thread: upgrade this one"
    ),
    "idempotency_in_flight": Problem(
        409, "In flight", "a request with this key is being answered", retryable=True
    ),
    "void": Problem(
        409, "Void", "it is in the log and was judged void: its key is used up, draw a new one"
    ),
    "conflict": Problem(409, "Conflict", "the state moved on since it was read"),
    "late": Problem(409, "Too late", "the time for it had passed: nothing was started"),
    "cursor_unknown": Problem(
        410, "Unknown cursor", "beyond the head: `oldest_seq` to `head_seq` can be read"
    ),
    "body_too_large": Problem(413, "Body too large", "more bytes than a request may have"),
    "media_type": Problem(
        415, "Not JSON", "a body that is not `application/json`, or is encoded once more"
    ),
    "idempotency_mismatch": Problem(
        422, "Another body", "the idempotency key was used before with another body"
    ),
    "quota_exceeded": Problem(
        429, "Too much", "a limit of the tenant is reached: `limit` names it", retryable=True
    ),
    "headers_too_large": Problem(431, "Headers too large", "too many header fields, or too long"),
    "internal": Problem(500, "Internal error", "a bug of ours: see the log of the gateway"),
    "corrupt": Problem(500, "Corrupt", "what was read cannot be trusted"),
    "invalid_record": Problem(500, "Corrupt", "a record does not fit its schema"),
    "log_file": Problem(500, "Corrupt", "the log itself is wrong"),
    "model_failed": Problem(502, "The model failed", "a request to a model failed"),
    "transient": Problem(503, "Not available now", "it may work later", retryable=True),
    "log_unavailable": Problem(
        503,
        "Log not available",
        "the log did not acknowledge; nothing is kept aside, but after a timeout it may be in the "
        "log: repeat it with the same key",
        retryable=True,
    ),
    "locked": Problem(503, "Locked", "another runtime holds the log", retryable=True),
    "overloaded": Problem(503, "Overloaded", "too many connections at once", retryable=True),
    "views_rebuilding": Problem(
        503, "Views are being rebuilt", "nothing can be said of any thread yet", retryable=True
    ),
    "views_behind": Problem(
        503, "Views are behind", "the views have not come so far yet", retryable=True
    ),
    "history_truncated": Problem(503, "History truncated", "the beginning of the log is gone"),
}
"""Every code that an answer can have."""

_BUGS: Final = 500
_OF_SOME: Final = ("limit", "oldest_seq", "head_seq")
_BY_STATUS: Final[Mapping[int, str]] = {
    400: "invalid_request",
    404: "not_found",
    405: "method_not_allowed",
    408: "body_timeout",
    413: "body_too_large",
    414: "invalid_request",
    415: "media_type",
    431: "headers_too_large",
    500: "internal",
    503: "overloaded",
}
_FAMILIES: tuple[tuple[type[ThreadlogError], str], ...] = (
    (RejectedError, "invalid_request"),
    (ConflictError, "conflict"),
    (TransientError, "transient"),
    (CorruptError, "corrupt"),
)


def problem_of(error: ThreadlogError) -> ProblemBody:
    """The problem that tells of this error."""
    code = error.code
    if code not in PROBLEMS:
        code = next((c for family, c in _FAMILIES if isinstance(error, family)), "internal")
    body = _body(code, str(error))
    if isinstance(error, CursorUnknownError):
        return body.model_copy(update={"oldest_seq": error.oldest_seq, "head_seq": error.head_seq})
    if isinstance(error, QuotaError):
        return body.model_copy(update={"limit": error.limit})
    return body


def problem_of_status(status: int, detail: str) -> ProblemBody:
    """The problem of a request that no route took, by its HTTP status."""
    known = _BY_STATUS.get(status)
    code = known or ("invalid_request" if status < _BUGS else "internal")
    return _body(code, detail).model_copy(update={"status": status})


def problem_text(problem: ProblemBody) -> str:
    """The document: what only some problems have is a member of theirs alone."""
    left_out = {name for name in _OF_SOME if getattr(problem, name) is None}
    return problem.model_dump_json(exclude=left_out)


def error_of(problem: ProblemBody) -> ThreadlogError:
    """The error that this problem tells of; one of an unknown code by whether it may pass."""
    by_code = {cls.code: cls for cls in _classes(ThreadlogError) if cls.code != "model_failed"}
    cls = by_code.get(problem.code)
    if cls is CursorUnknownError:
        oldest, head = problem.oldest_seq or 0, problem.head_seq
        return CursorUnknownError(
            problem.detail, oldest_seq=oldest, head_seq=-1 if head is None else head
        )
    if cls is QuotaError:
        return QuotaError(problem.detail, limit=problem.limit or "")
    if cls is None:
        cls = TransientError if problem.retryable else RejectedError
    return cls(problem.detail)


def _body(code: str, detail: str) -> ProblemBody:
    kind = PROBLEMS[code]
    return ProblemBody(
        type=f"{_URN}{code}",
        title=kind.title,
        status=kind.status,
        detail=detail,
        code=code,
        retryable=kind.retryable,
    )


def _classes(root: type[ThreadlogError]) -> Iterator[type[ThreadlogError]]:
    for cls in root.__subclasses__():
        yield cls
        yield from _classes(cls)
