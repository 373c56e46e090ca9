"""Events for tests: any body in a valid envelope, with ids that follow from small numbers."""

from threadlog import ids
from threadlog.events.codec import encode_body
from threadlog.events.content import TextPart
from threadlog.events.envelope import Body, Event
from threadlog.events.input import MessageReceived
from threadlog.events.thread import ThreadCreated
from threadlog.ids import EventId, TenantId, ThreadId, TurnId, WorkerId, WorkspaceId

LOCAL = ids.LOCAL_TENANT
OTHER = TenantId("other")
TRACE = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01", "tracestate": "vendor=1"}
"""The members of an event that a trace was said for."""
WHEN = "2026-11-30T18:00:00.000Z"


def thread_id(n: int = 0) -> ThreadId:
    """A thread's id, equal for equal `n`."""
    return ThreadId(ids.derive("test-thread", n))


def event_id(n: int | str) -> EventId:
    """An event's id, equal for equal `n`."""
    return EventId(ids.derive("test-event", n))


def make_event(
    body: Body,
    *,
    event_id: EventId | None = None,
    tenant: TenantId = LOCAL,
    thread: ThreadId | None = None,
    turn_id: TurnId | None = None,
    caused_by: EventId | None = None,
    actor: str = "user:test",
    source: str = "gateway",
    worker: WorkerId | None = None,
    workspace_id: WorkspaceId | None = None,
    idempotency_key: str | None = None,
    occurred_at: str = WHEN,
) -> Event:
    """`body` in an envelope; `event_id` None: derived, so equal for equal events."""
    data = encode_body(body)
    thread = thread or thread_id()
    return Event(
        event_id=event_id
        or EventId(ids.derive(tenant, thread, body.TYPE, data.decode(), caused_by or "")),
        type=body.TYPE,
        version=body.VERSION,
        tenant_id=tenant,
        thread_id=thread,
        turn_id=turn_id,
        caused_by=caused_by,
        actor=actor,
        source=source,
        worker=worker,
        workspace_id=workspace_id,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        critical=body.CRITICAL,
        body=body,
        data=data,
    )


def created(thread: ThreadId | None = None, *, tenant: TenantId = LOCAL) -> Event:
    """The first event of a thread."""
    return make_event(ThreadCreated(title="a test"), thread=thread, tenant=tenant)


def message(
    text: str,
    thread: ThreadId | None = None,
    *,
    tenant: TenantId = LOCAL,
    caused_by: EventId | None = None,
    event_id: EventId | None = None,
) -> Event:
    """A message; its id follows from its text and thread."""
    body = MessageReceived(base_seq=-1, delivery="next_turn", content=(TextPart(text=text),))
    return make_event(body, thread=thread, tenant=tenant, caused_by=caused_by, event_id=event_id)
