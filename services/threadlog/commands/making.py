"""Requests made into the events that a gateway appends, each with the id that its key derives.

A creation is one operation, whatever it makes: its settings and its message have ids of their own,
so that the same key may be used again to change settings or to send a message.
"""

from threadlog.clock import Clock, rfc3339
from threadlog.commands.requests import NewMessage, ThreadSettings
from threadlog.errors import RejectedError
from threadlog.events.content import Text, TextPart
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
)
from threadlog.limits import MESSAGE_BYTES_MAX
from threadlog.ports.blobs import Blobs
from threadlog.ports.texts import store_texts
from threadlog.telemetry.scope import request_trace

DELIVERIES: tuple[Delivery, ...] = ("reject", "next_turn")
"""What is taken by now; steering and interrupts follow with their own commands."""
_CREATE = "thread.create"
_CREATED, _FIRST_SETTINGS, _FIRST_MESSAGE = 0, 1, 2
"""Ordinals of what a creation makes."""


class Maker:
    """Makes the events of one tenant's and actor's commands."""

    def __init__(self, blobs: Blobs, clock: Clock, tenant: TenantId, actor: str) -> None:
        self._blobs = blobs
        self._tenant = tenant
        self._actor = actor
        self._writer = EventWriter("gateway", None, lambda: rfc3339(clock.now_ms()), request_trace)

    def id_of(self, thread: ThreadId, operation: str, key: str) -> EventId:
        """The id of the event that this operation makes under this key."""
        return input_id(self._tenant, thread, operation, key)

    def id_of_first(self, thread: ThreadId, key: str) -> EventId:
        """The id of the message that a creation under this key brings along."""
        return input_id(self._tenant, thread, _CREATE, key, _FIRST_MESSAGE)

    def created(self, thread: ThreadId, title: str | None, key: str) -> Event:
        """`thread.created`."""
        event_id = input_id(self._tenant, thread, _CREATE, key, _CREATED)
        return self._event(thread, ThreadCreated(title=title), event_id, key)

    def configured(
        self,
        thread: ThreadId,
        settings: ThreadConfigured,
        key: str,
        head: Seq,
        *,
        cause: EventId | None = None,
    ) -> Event:
        """`thread.configured`. `cause`: the creation of the thread, when it comes with it."""
        body = settings.model_copy(update={"base_seq": head})
        event_id = self.id_of(thread, "thread.configure", key)
        if cause is not None:
            event_id = input_id(self._tenant, thread, _CREATE, key, _FIRST_SETTINGS)
        return self._event(thread, body, event_id, key, cause=cause)

    def message(
        self,
        thread: ThreadId,
        message: MessageReceived,
        key: str,
        head: Seq,
        *,
        is_first: bool = False,
    ) -> Event:
        """`message.received`. `is_first`: it comes with the creation of the thread."""
        body = message.model_copy(update={"base_seq": head})
        event_id = self.id_of(thread, "message.send", key)
        if is_first:
            event_id = self.id_of_first(thread, key)
        return self._event(thread, body, event_id, key)

    def cancel(
        self, thread: ThreadId, turn: TurnId, call: CallId | None, key: str, head: Seq
    ) -> Event:
        """`cancel.requested`."""
        body = CancelRequested(base_seq=head, turn_id=turn, cause="user", call_id=call)
        return self._event(thread, body, self.id_of(thread, "cancel.request", key), key)

    async def settings(self, settings: ThreadSettings) -> ThreadConfigured:
        """The body but for its `base_seq`, a long system prompt in the blob store."""
        prompt = settings.system_prompt
        stored: Text | None = None
        if prompt is not None:
            _bytes_of(prompt, "the system prompt")
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

    async def content(self, message: NewMessage) -> MessageReceived:
        """The body but for its `base_seq`, long texts in the blob store.

        Raises:  RejectedError: a delivery that is not taken, or too long a text.
        """
        if message.delivery not in DELIVERIES:
            raise RejectedError(
                f"delivery {message.delivery} is not available yet: {', '.join(DELIVERIES)}"
            )
        parts = message.content
        texts = [p.text for p in parts if isinstance(p, TextPart) and isinstance(p.text, str)]
        size = sum(_bytes_of(text, "the message") for text in texts)
        if size > MESSAGE_BYTES_MAX:
            raise RejectedError(f"a message has at most {MESSAGE_BYTES_MAX:,} bytes of text")
        stored = iter(await store_texts(self._blobs, self._tenant, texts))
        content = tuple(
            TextPart(text=next(stored))
            if isinstance(p, TextPart) and isinstance(p.text, str)
            else p
            for p in parts
        )
        return MessageReceived(base_seq=NO_SEQ, delivery=message.delivery, content=content)

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


def _bytes_of(text: str, name: str) -> int:
    """The size of a text that can be written.

    Raises:  RejectedError: half a surrogate pair is in it, as in the arguments of a command line.
    """
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise RejectedError(f"{name} is not UTF-8 text") from None
