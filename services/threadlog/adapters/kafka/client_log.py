"""Where the clients' own messages go: to a logger of ours, and sparingly.

While the broker is away the client says so many times a second; the first time and every ten
seconds are enough. Without a handler of the program's nothing is shown.
"""

import logging
import re

_SPARE_S = 10.0
_KNOWN_MAX = 256
_HARMLESS = "Coordinator load in progress"
"""Said by every producer that meets a broker which has just started; it tries again by itself."""
_NUMBERS = re.compile(r"\d+")


class _Sparing(logging.Filter):
    """Lets a message pass that was not said lately, whatever the numbers in it."""

    def __init__(self) -> None:
        super().__init__()
        self._said_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if _HARMLESS in record.getMessage():
            return False
        text = _NUMBERS.sub("0", record.getMessage())
        last_s = self._said_s.get(text)
        if last_s is not None and record.created - last_s < _SPARE_S:
            return False
        if len(self._said_s) >= _KNOWN_MAX:
            self._said_s.clear()
        self._said_s[text] = record.created
        return True


CLIENT_LOG = logging.getLogger("threadlog.kafka.client")
CLIENT_LOG.addHandler(logging.NullHandler())
CLIENT_LOG.addFilter(_Sparing())
