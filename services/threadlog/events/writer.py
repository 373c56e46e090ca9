"""Making events: the envelope around a body, for one writer. Pure but for the time passed in."""

from collections.abc import Callable

from threadlog.events.codec import encode_body
from threadlog.events.envelope import Body, Event
from threadlog.ids import EventId, TenantId, ThreadId, TurnId, WorkerId, WorkspaceId

Trace = tuple[str | None, str | None]
"""`traceparent` and `tracestate`."""
NO_TRACE: Trace = (None, None)


class EventWriter:
    """Makes the events of one service: its source, its worker id, the time as RFC 3339 text.

    Shapes:  `trace_of`: the trace that the events of a turn belong to, None: those of no turn.
    """

    def __init__(
        self,
        source: str,
        worker: WorkerId | None,
        now: Callable[[], str],
        trace_of: Callable[[TurnId | None], Trace] = lambda _: NO_TRACE,
    ) -> None:
        self.source = source
        self.worker = worker
        self._now = now
        self._trace_of = trace_of

    def make(  # noqa: PLR0913  # one argument a member of the envelope
        self,
        stream: tuple[TenantId, ThreadId],
        body: Body,
        event_id: EventId,
        *,
        caused_by: EventId | None,
        turn_id: TurnId | None = None,
        actor: str | None = None,
        workspace_id: WorkspaceId | None = None,
        idempotency_key: str | None = None,
    ) -> Event:
        """The event, encoded. `actor` None: the service itself acts."""
        traceparent, tracestate = self._trace_of(turn_id)
        return Event(
            event_id=event_id,
            type=body.TYPE,
            version=body.VERSION,
            tenant_id=stream[0],
            thread_id=stream[1],
            turn_id=turn_id,
            caused_by=caused_by,
            actor=actor or f"service:{self.source}",
            source=self.source,
            worker=self.worker,
            workspace_id=workspace_id,
            idempotency_key=idempotency_key,
            occurred_at=self._now(),
            critical=body.CRITICAL,
            traceparent=traceparent,
            tracestate=tracestate,
            body=body,
            data=encode_body(body),
        )
