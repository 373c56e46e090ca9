"""When a failed attempt is tried again. Pure: the jitter comes from the attempt's own id."""

from threadlog.errors import ModelError
from threadlog.ids import EventId
from threadlog.limits import MODEL_ATTEMPTS_MAX, RETRY_BASE_MS, RETRY_CAP_MS


def retry_delay_ms(error: ModelError, failures: int, claim: EventId) -> int | None:
    """How long to wait before the next attempt; None: there is none.

    Shapes:  `failures` counts this one. The provider's own wish is honoured up to the cap. A
             shutdown of ours is no failure of the model: it is asked again at once.
    Units:   milliseconds.
    """
    if error.error_class == "shutdown":
        return 0
    if not error.retryable or failures >= MODEL_ATTEMPTS_MAX:
        return None
    if error.retry_after_ms is not None:
        return min(error.retry_after_ms, RETRY_CAP_MS)
    full = min(RETRY_BASE_MS * 2 ** (failures - 1), RETRY_CAP_MS)
    jitter = int(claim[:4], 16) / 0xFFFF
    return int(full * (0.5 + jitter / 2))
