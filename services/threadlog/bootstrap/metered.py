"""The log with its appends counted."""

from collections.abc import AsyncIterator, Sequence
from typing import get_args

from threadlog.clock import Clock
from threadlog.errors import RejectedError, TransientError
from threadlog.events.envelope import Event
from threadlog.ids import Position
from threadlog.ports.log import Appender, Log, Receipt, Record
from threadlog.telemetry.metrics import Metrics
from threadlog.telemetry.table import Service


class MeteredAppender:
    """Implements `ports.log.Appender` on another one."""

    def __init__(self, log: Appender, metrics: Metrics, service: Service, clock: Clock) -> None:
        assert service in get_args(Service)
        self._log = log
        self._metrics = metrics
        self._service: Service = service
        self._clock = clock

    async def append(self, events: Sequence[Event]) -> Sequence[Receipt]:
        """As the other one."""
        began_ms = self._clock.mono_ms()
        try:
            receipts = await self._log.append(events)
        except RejectedError:
            self._metrics.append_failed(self._service, "rejected")
            raise
        except TransientError:
            self._metrics.append_failed(self._service, "unavailable")
            raise
        seconds = (self._clock.mono_ms() - began_ms) / 1_000
        self._metrics.appended(self._service, [event.type for event in events], seconds)
        return receipts


class MeteredLog(MeteredAppender):
    """Implements `ports.log.Log` on another one."""

    def __init__(self, log: Log, metrics: Metrics, service: Service, clock: Clock) -> None:
        super().__init__(log, metrics, service, clock)
        self._whole = log

    def subscribe(self, after: Position) -> AsyncIterator[Sequence[Record]]:
        """As the other one."""
        return self._whole.subscribe(after)

    async def end(self) -> Position:
        """As the other one."""
        return await self._whole.end()
