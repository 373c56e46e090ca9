"""Every error that Threadlog raises on purpose, in one tree.

::

    ThreadlogError
    +-- RejectedError            the caller's fault: report it, do not retry
    |   +-- UsageError           a wrong flag, setting or argument
    |   +-- NotFoundError        no such thread, blob or event
    |   +-- MismatchError        an idempotency key was used before with another body
    |   +-- RefusedError         the environment does not allow it: sandbox, lock, folder
    |   +-- DeniedError          whoever asks may not have it, whatever the credential
    |   +-- UnauthenticatedError no credential, or none that is valid
    |   +-- ScopeMissingError    the credential does not allow it
    |   +-- CursorInvalidError   a cursor, page token or receipt that none of ours wrote
    |   +-- CursorUnknownError   a cursor beyond the head of its thread
    |   +-- BodyTooLargeError    more bytes than a request may have
    |   +-- BodyTimeoutError     the request did not arrive in time
    |   +-- MediaTypeError       a body that says that it is something else than JSON
    +-- ConflictError            the state moved on: load again, decide again
    |   +-- TurnOpenError        `reject` delivery while a turn is open
    |   +-- VoidError            the appended event was judged void by the fold
    |   +-- LateError            the claim's time to start had passed: nothing was started
    |   +-- ThreadNewerError     a newer version stopped the thread: upgrade
    |   +-- InFlightError        a request with the same idempotency key is being answered
    +-- TransientError           may work later; what was appended is unknown
    |   +-- LogUnavailableError  the log cannot take appends now
    |   +-- LockedError          another runtime holds the file
    |   +-- ViewsRebuildingError the views were lost and are being made again
    |   +-- ViewsBehindError     the views have not come so far yet
    |   +-- QuotaError           a limit of the tenant is reached; says which, and for how long
    +-- CorruptError             a record, snapshot or file cannot be trusted
    |   +-- RecordError          one record does not decode or does not fit its schema
    |   +-- LogFileError         the log itself is wrong: foreign, newer or damaged file
    |   +-- HistoryTruncatedError  the log's beginning is gone: records that nobody read
    +-- ModelError               one model request failed; its class says how

A worker acts on the family alone, never on the message. Each class has a stable `code`.
"""


class ThreadlogError(Exception):
    """Root of the tree; never raised itself."""

    code = "internal"


class RejectedError(ThreadlogError):
    """The caller's fault; the same request fails again."""

    code = "invalid_request"


class UsageError(RejectedError):
    """A flag, setting or argument is wrong; the message says what and how to fix it."""

    code = "usage"


class NotFoundError(RejectedError):
    """The named thing does not exist, or not for this tenant: the answer is the same."""

    code = "not_found"


class MismatchError(RejectedError):
    """The idempotency key was used before with another body: draw a new key."""

    code = "idempotency_mismatch"


class RefusedError(RejectedError):
    """The environment does not allow it: no sandbox, a foreign folder, a newer file."""

    code = "refused"


class DeniedError(RejectedError):
    """Whoever asks may not have it: another page's origin, another model, a folder of a machine."""

    code = "denied"


class UnauthenticatedError(RejectedError):
    """No credential, or none that is valid: malformed, unknown, expired, revoked, all alike."""

    code = "unauthenticated"


class ScopeMissingError(RejectedError):
    """The credential is valid and does not allow this; the message names the scope."""

    code = "scope_missing"


class CursorInvalidError(RejectedError):
    """A cursor, page token or receipt that none of ours wrote."""

    code = "cursor_invalid"


class CursorUnknownError(RejectedError):
    """A cursor beyond the head of its thread: `oldest_seq` to `head_seq` can be read."""

    code = "cursor_unknown"

    def __init__(self, message: str, *, oldest_seq: int = 0, head_seq: int = -1) -> None:
        super().__init__(message)
        self.oldest_seq = oldest_seq
        self.head_seq = head_seq


class BodyTooLargeError(RejectedError):
    """More bytes than a request may have."""

    code = "body_too_large"


class BodyTimeoutError(RejectedError):
    """The request did not arrive whole in the time that it is given."""

    code = "body_timeout"


class MediaTypeError(RejectedError):
    """A body that says that it is something else than JSON."""

    code = "media_type"


class ConflictError(ThreadlogError):
    """The state moved on since it was read."""

    code = "conflict"


class TurnOpenError(ConflictError):
    """A message with delivery `reject` met an open turn or a queued message."""

    code = "turn_open"


class VoidError(ConflictError):
    """The event is in the log but was judged void; the message names the reason."""

    code = "void"


class LateError(ConflictError):
    """The claim's time to start had passed: nothing was started."""

    code = "late"


class ThreadNewerError(ConflictError):
    """A critical event of a newer version has stopped the thread: read on with that version."""

    code = "thread_newer"


class InFlightError(ConflictError):
    """A request with the same idempotency key is being answered: repeat it a moment later."""

    code = "idempotency_in_flight"


class TransientError(ThreadlogError):
    """May work later. Whether the append happened is unknown: repeat it with the same ids."""

    code = "transient"


class LogUnavailableError(TransientError):
    """The log takes no appends now."""

    code = "log_unavailable"


class LockedError(TransientError):
    """Another runtime holds the lock of the embedded log and did not answer."""

    code = "locked"


class ViewsRebuildingError(TransientError):
    """The views were lost and are being made again: nothing can be said of any thread yet."""

    code = "views_rebuilding"


class ViewsBehindError(TransientError):
    """The views have not come so far yet, in the time that was given."""

    code = "views_behind"


class QuotaError(TransientError):
    """A limit of the tenant is reached. `limit` names it; it may work again in `retry_after_s`."""

    code = "quota_exceeded"

    def __init__(self, message: str, *, limit: str = "", retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.limit = limit
        self.retry_after_s = retry_after_s


class CorruptError(ThreadlogError):
    """What was read cannot be trusted."""

    code = "corrupt"


class RecordError(CorruptError):
    """One record does not decode, or its body does not fit the schema of its type and version."""

    code = "invalid_record"


class LogFileError(CorruptError):
    """The file is not a log of ours, is newer than this version, or is damaged."""

    code = "log_file"


class HistoryTruncatedError(CorruptError):
    """The log's beginning is gone: what lies behind the position cannot be read any more."""

    code = "history_truncated"


class ModelError(ThreadlogError):
    """One attempt of a model request failed.

    `error_class` is a member of `events.step.ErrorClass`; `retry_after_ms` is the provider's own
    wish, or None when it named none.
    """

    code = "model_failed"

    def __init__(
        self,
        message: str,
        *,
        error_class: str,
        retryable: bool,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms
