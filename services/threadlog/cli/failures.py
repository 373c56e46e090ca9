"""Which exit code a command ends with. Pure.

0 ok, 1 failed, 2 usage, 3 transient, 4 not authenticated or not allowed, 5 not found, 6 conflict or
void, 7 quota or budget, 9 a difference was found, 130 interrupted, 141 the reader of the output has
gone, 143 terminated. Source: SURFACES 2.
"""

from enum import IntEnum

from threadlog.errors import (
    ConflictError,
    CorruptError,
    DeniedError,
    ModelError,
    NotFoundError,
    QuotaError,
    RejectedError,
    ScopeMissingError,
    ThreadlogError,
    TransientError,
    UnauthenticatedError,
    UsageError,
)


class ExitCode(IntEnum):
    """What a command ends with."""

    OK = 0
    FAILED = 1
    USAGE = 2
    TRANSIENT = 3
    NOT_ALLOWED = 4
    NOT_FOUND = 5
    CONFLICT = 6
    BUDGET = 7
    DIFFERS = 9
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    TERMINATED = 143


_FAMILIES: tuple[tuple[type[ThreadlogError], ExitCode], ...] = (
    (UsageError, ExitCode.USAGE),
    (NotFoundError, ExitCode.NOT_FOUND),
    (UnauthenticatedError, ExitCode.NOT_ALLOWED),
    (ScopeMissingError, ExitCode.NOT_ALLOWED),
    (DeniedError, ExitCode.NOT_ALLOWED),
    (QuotaError, ExitCode.BUDGET),
    (RejectedError, ExitCode.FAILED),
    (ConflictError, ExitCode.CONFLICT),
    (TransientError, ExitCode.TRANSIENT),
    (CorruptError, ExitCode.FAILED),
)


def exit_code(error: ThreadlogError) -> ExitCode:
    """The exit code of a command that ends with `error`."""
    if isinstance(error, ModelError):
        if error.error_class == "unauthenticated":
            return ExitCode.NOT_ALLOWED
        return ExitCode.TRANSIENT if error.retryable else ExitCode.FAILED
    found = (code for family, code in _FAMILIES if isinstance(error, family))
    return next(found, ExitCode.FAILED)


def verdict_code(verdict: str, *, by_us: bool) -> ExitCode:
    """The exit code of `run` for a turn that ended with `verdict`; `by_us`: our own Ctrl-C."""
    match verdict:
        case "completed":
            return ExitCode.OK
        case "budget":
            return ExitCode.BUDGET
        case "cancelled" if by_us:
            return ExitCode.INTERRUPTED
        case _:
            return ExitCode.FAILED
