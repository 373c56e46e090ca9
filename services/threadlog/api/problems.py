"""Errors of ours as problems on the wire, and back. Pure."""

from collections.abc import Iterator

from threadlog.api.threads import ProblemBody
from threadlog.errors import (
    ConflictError,
    CorruptError,
    NotFoundError,
    RejectedError,
    ThreadlogError,
    TransientError,
)

PROBLEM_TYPE = "application/problem+json"
_STATUS: tuple[tuple[type[ThreadlogError], int, str], ...] = (
    (NotFoundError, 404, "Not found"),
    (RejectedError, 400, "Invalid request"),
    (ConflictError, 409, "Conflict"),
    (TransientError, 503, "Not available now"),
    (CorruptError, 500, "Corrupt"),
    (ThreadlogError, 500, "Internal error"),
)
_REFUSED: dict[int, tuple[str, str]] = {
    404: ("not_found", "Not found"),
    405: ("method_not_allowed", "Method not allowed"),
    413: ("body_too_large", "Body too large"),
}


def problem_of(error: ThreadlogError) -> ProblemBody:
    """The problem that tells of this error; the first family that fits gives the status."""
    status, title = next((s, t) for family, s, t in _STATUS if isinstance(error, family))
    if error.code == "idempotency_mismatch":
        status = 422
    return ProblemBody(
        type=f"urn:threadlog:problem:{error.code}",
        title=title,
        status=status,
        detail=str(error),
        code=error.code,
        retryable=isinstance(error, TransientError),
    )


def problem_of_status(status: int, detail: str) -> ProblemBody:
    """The problem of a request that no route took, by its HTTP status."""
    code, title = _REFUSED.get(status, ("invalid_request", "Invalid request"))
    return ProblemBody(
        type=f"urn:threadlog:problem:{code}",
        title=title,
        status=status,
        detail=detail,
        code=code,
        retryable=False,
    )


def error_of(problem: ProblemBody) -> ThreadlogError:
    """The error that this problem tells of; one of an unknown code by its status."""
    by_code = {cls.code: cls for cls in _classes(ThreadlogError) if cls.code != "model_failed"}
    cls = by_code.get(problem.code)
    if cls is None:
        cls = TransientError if problem.retryable else RejectedError
    return cls(problem.detail)


def _classes(root: type[ThreadlogError]) -> Iterator[type[ThreadlogError]]:
    for cls in root.__subclasses__():
        yield cls
        yield from _classes(cls)
