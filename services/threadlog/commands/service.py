"""The commands that gateway and in-process client share.

In:  nothing
Out: thread.created thread.configured message.received cancel.requested
"""

import asyncio
from collections.abc import Callable, Sequence

from threadlog.clock import Clock, rfc3339
from threadlog.commands.requests import Accepted, NewMessage, NewThread, ThreadSettings
from threadlog.errors import (
    ConflictError,
    CorruptError,
    MismatchError,
    NotFoundError,
    RejectedError,
    TransientError,
    TurnOpenError,
    VoidError,
)
from threadlog.events.content import MessagePart, Text, TextPart
from threadlog.events.envelope import Body, Event
from threadlog.events.input import CancelRequested, Delivery, MessageReceived
from threadlog.events.thread import ThreadConfigured, ThreadCreated
from threadlog.events.writer import EventWriter
from threadlog.ids import (
    NO_SEQ,
    CallId,
    EventId,
    Seq,
    TenantId,
    ThreadId,
    TurnId,
    input_id,
    new_thread_id,
)
from threadlog.limits import IDEMPOTENCY_KEY_CHARS_MAX
from threadlog.ports.blobs import Blobs
from threadlog.ports.log import Appender, Receipt
from threadlog.ports.texts import store_texts
from threadlog.ports.views import StoredEvent, ThreadRow, Views

_JUDGED_S = 30.0
"""How long a command waits for the views to judge what it appended."""
_OTHER_BODY = "this idempotency key was used with another body: use a new key"
_STOPPED = "stopped by an error: see the log of the projection"
_ATTEMPTS_MAX = 4
"""How often an input is looked up and appended again after it was judged stale."""
DELIVERIES: tuple[Delivery, ...] = ("reject", "next_turn")
"""What is taken by now; steering and interrupts follow with their own commands."""

Make = Callable[[Seq], list[Event]]
"""Head of the view in which the ids were looked up -> the events, which carry it."""


class Commands:
    """Commands of one tenant and actor."""

    def __init__(
        self,
        log: Appender,
        views: Views,
        blobs: Blobs,
        clock: Clock,
        *,
        tenant: TenantId,
        actor: str,
    ) -> None:
        self._log = log
        self._views = views
        self._blobs = blobs
        self._tenant = tenant
        self._actor = actor
        self._writer = EventWriter("gateway", None, lambda: rfc3339(clock.now_ms()))

    async def create_thread(self, new: NewThread, *, key: str) -> Accepted:
        """A thread exists, with its settings and, where there is one, its first message.

        Effects: appends; the same key makes the same thread and never a second message.
        Raises:  TransientError: unknown what was appended; repeat it with the same key.
                 MismatchError: the key was used before with another message.
        """
        _check_key(key)
        thread = new_thread_id(self._tenant, key)
        created = input_id(self._tenant, thread, "thread.create", key)
        settings = await self._settings(new.settings)
        parts = None if new.message is None else await self._stored(new.message.content)

        def make(head: Seq) -> list[Event]:
            events = [self._event(thread, ThreadCreated(title=new.title), created, key)]
            configured = settings.model_copy(update={"base_seq": head})
            event_id = input_id(self._tenant, thread, "thread.configure", key)
            events.append(self._event(thread, configured, event_id, key, cause=created))
            if new.message is not None and parts is not None:
                events.append(self._message(thread, parts, new.message.delivery, head, key))
            return events

        if new.message is not None:
            _check_delivery(new.message.delivery)
        if await self._views.find(self._tenant, thread, created) is not None:
            return await self._created_before(thread, make(NO_SEQ), key)
        return await self._input(thread, make, NO_SEQ, is_new=True)

    async def configure(self, thread: ThreadId, settings: ThreadSettings, *, key: str) -> Accepted:
        """The settings are in force from the next step on."""
        row = await self._row(thread)
        members = await self._settings(settings)
        event_id = input_id(self._tenant, thread, "thread.configure", key)

        def make(head: Seq) -> list[Event]:
            body = members.model_copy(update={"base_seq": head})
            return [self._event(thread, body, event_id, key)]

        return await self._input(thread, make, row.head)

    async def send_message(self, thread: ThreadId, message: NewMessage, *, key: str) -> Accepted:
        """The message is in the inbox.

        Raises:  TurnOpenError: delivery `reject`, and a turn is open or a message queued.
        """
        _check_delivery(message.delivery)
        row = await self._row(thread)
        if message.delivery == "reject" and row.status != "idle":
            event_id = input_id(self._tenant, thread, "message.send", key)
            if await self._views.find(self._tenant, thread, event_id) is None:
                raise TurnOpenError("a turn is open: wait for it, or send with next_turn")
        parts = await self._stored(message.content)

        def make(head: Seq) -> list[Event]:
            return [self._message(thread, parts, message.delivery, head, key)]

        return await self._input(thread, make, row.head)

    async def cancel(
        self, thread: ThreadId, turn: TurnId, call: CallId | None = None, *, key: str
    ) -> Accepted:
        """The open turn, or one call of it, was told to stop.

        Raises:  ConflictError: it is not open, or was told already.
        """
        row = await self._row(thread)
        event_id = input_id(self._tenant, thread, "cancel.request", key)

        def make(head: Seq) -> list[Event]:
            body = CancelRequested(base_seq=head, turn_id=turn, cause="user", call_id=call)
            return [self._event(thread, body, event_id, key)]

        return await self._input(thread, make, row.head)

    # -- how an input is appended

    async def _input(
        self, thread: ThreadId, make: Make, head: Seq, *, is_new: bool = False
    ) -> Accepted:
        """Look the ids up, append, wait for the judgement; again when it was stale.

        Shapes:  `is_new`: the thread is made with them and its caller has looked; if somebody else
                 made it since with the same key, they are void and found then.
        """
        for attempt in range(_ATTEMPTS_MAX):
            events = make(head)
            if attempt or not is_new:
                found = await self._views.find(self._tenant, thread, events[-1].event_id)
                if found is not None and found.void != "stale":
                    return _known(found, events[-1])
            receipts = await self._log.append(events)
            judged = await self._judged(thread, receipts)
            if judged.void == "repeat" or judged.position < receipts[0].position:
                return await self._repeated(thread, events)
            if judged.void != "stale":
                return _accepted(judged)
            head = (await self._row(thread)).head
        raise ConflictError("the thread takes too many inputs at once: try again")

    async def _judged(self, thread: ThreadId, receipts: Sequence[Receipt]) -> StoredEvent:
        """The judgement of the last one.

        Raises:  TransientError: the views do not follow the log; the events are in it.
        """
        last = receipts[-1]
        try:
            async with asyncio.timeout(_JUDGED_S):
                await self._views.reached(self._tenant, thread, last.position)
        except TimeoutError as error:
            raise TransientError(
                f"the input is in the log, in thread {thread}, but no projection has judged it in "
                f"{_JUDGED_S:.0f} s: do not send it again, see that one runs, look at the thread"
            ) from error
        return await self._found(thread, last.event_id)

    async def _created_before(
        self, thread: ThreadId, events: Sequence[Event], key: str
    ) -> Accepted:
        """What this key made, if it asked for the same: settings, title, and a message or none."""
        message = input_id(self._tenant, thread, "message.send", key)
        had_message = await self._views.find(self._tenant, thread, message) is not None
        if had_message != (events[-1].event_id == message):
            raise MismatchError(_OTHER_BODY)
        return await self._repeated(thread, events)

    async def _repeated(self, thread: ThreadId, events: Sequence[Event]) -> Accepted:
        """What was accepted before under these ids, if it was the same."""
        known = [_known(await self._found(thread, e.event_id), e) for e in events]
        return known[-1]

    async def _found(self, thread: ThreadId, event_id: EventId) -> StoredEvent:
        found = await self._views.find(self._tenant, thread, event_id)
        if found is None:
            # The view has passed its position without a judgement: the thread was given up there.
            raise CorruptError(f"thread {thread} was {_STOPPED}")
        return found

    async def _row(self, thread: ThreadId) -> ThreadRow:
        row = await self._views.thread(self._tenant, thread)
        if row is None:
            raise NotFoundError(f"no thread {thread}")
        return row

    # -- how an event is made

    def _event(
        self,
        thread: ThreadId,
        body: Body,
        event_id: EventId,
        key: str,
        *,
        cause: EventId | None = None,
    ) -> Event:
        return self._writer.make(
            (self._tenant, thread),
            body,
            event_id,
            caused_by=cause,
            actor=self._actor,
            idempotency_key=key,
        )

    def _message(
        self,
        thread: ThreadId,
        parts: tuple[MessagePart, ...],
        delivery: Delivery,
        head: Seq,
        key: str,
    ) -> Event:
        body = MessageReceived(base_seq=head, delivery=delivery, content=parts)
        event_id = input_id(self._tenant, thread, "message.send", key)
        return self._event(thread, body, event_id, key)

    async def _settings(self, settings: ThreadSettings) -> ThreadConfigured:
        """The body but for its `base_seq`, a long system prompt in the blob store."""
        prompt = settings.system_prompt
        stored: Text | None = None
        if prompt is not None:
            stored = (await store_texts(self._blobs, self._tenant, [prompt]))[0]
        return ThreadConfigured(
            base_seq=NO_SEQ,
            model=settings.model,
            thinking=settings.thinking,
            system_prompt=stored,
            tools=settings.tools,
            limits=settings.limits,
            workspace=settings.workspace,
        )

    async def _stored(self, parts: tuple[MessagePart, ...]) -> tuple[MessagePart, ...]:
        texts = [p.text for p in parts if isinstance(p, TextPart) and isinstance(p.text, str)]
        stored = iter(await store_texts(self._blobs, self._tenant, texts))
        return tuple(
            TextPart(text=next(stored))
            if isinstance(p, TextPart) and isinstance(p.text, str)
            else p
            for p in parts
        )


def _check_key(key: str) -> None:
    if not 0 < len(key) <= IDEMPOTENCY_KEY_CHARS_MAX:
        raise RejectedError(f"an idempotency key has 1 to {IDEMPOTENCY_KEY_CHARS_MAX} characters")


def _check_delivery(delivery: Delivery) -> None:
    if delivery not in DELIVERIES:
        raise RejectedError(f"delivery {delivery} is not available yet: {', '.join(DELIVERIES)}")


def _known(found: StoredEvent, wanted: Event) -> Accepted:
    """The stored event answers a repeated key, if it asks for the same."""
    if _intent_of(found.event) != _intent_of(wanted):
        raise MismatchError(_OTHER_BODY)
    return _accepted(found)


def _intent_of(event: Event) -> object:
    """The body without `base_seq`, which differs between two looks at the same key."""
    return event.type, event.body.model_copy(update={"base_seq": 0})


def _accepted(found: StoredEvent) -> Accepted:
    if found.seq is None:
        if found.void == "stopped":
            raise CorruptError(f"thread {found.event.thread_id} was {_STOPPED}")
        if found.void == "turn_open":
            raise TurnOpenError("a turn is open: wait for it, or send with next_turn")
        raise VoidError(f"not accepted: {found.void}")
    event = found.event
    return Accepted(event.thread_id, event.event_id, found.position, found.seq)
