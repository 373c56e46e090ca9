"""The commands that gateway and in-process client share.

In:  nothing
Out: thread.created thread.configured message.received cancel.requested

A command of `Commands` returns once the fold's verdict is known. One of `submitted` returns as soon
as its events are durable, and waits a moment for the verdict only where the caller must know it:
202 is an acknowledgement of the log, not of the views.
"""

from threadlog.clock import Clock
from threadlog.commands.inputs import Input, Inputs
from threadlog.commands.making import Maker
from threadlog.commands.requests import (
    Accepted,
    Appended,
    NewMessage,
    NewThread,
    ThreadSettings,
)
from threadlog.errors import NotFoundError, RejectedError, ThreadNewerError, TurnOpenError
from threadlog.events.envelope import Event
from threadlog.events.input import CancelRequested
from threadlog.ids import NO_SEQ, CallId, Seq, TenantId, ThreadId, TurnId, new_thread_id
from threadlog.limits import IDEMPOTENCY_KEY_CHARS_MAX
from threadlog.ports.blobs import Blobs
from threadlog.ports.log import Appender
from threadlog.ports.views import (
    Reads,
    ThreadRow,
)


class Commands:
    """Commands of one tenant and actor; each waits for the verdict of the fold."""

    def __init__(
        self,
        log: Appender,
        views: Reads,
        blobs: Blobs,
        clock: Clock,
        *,
        tenant: TenantId,
        actor: str,
    ) -> None:
        inputs = Inputs(log, views, tenant)
        self.submitted = Submissions(inputs, views, Maker(blobs, clock, tenant, actor), tenant)
        self._inputs = inputs

    async def create_thread(self, new: NewThread, *, key: str) -> Accepted:
        """A thread exists, with its settings and, where there is one, its first message.

        Effects: appends; the same key makes the same thread and never a second message.
        Raises:  TransientError: unknown what was appended; repeat it with the same key.
                 MismatchError: the key was used before with another message.
        """
        return await self._inputs.judged(await self.submitted.new_thread(new, key=key))

    async def configure(self, thread: ThreadId, settings: ThreadSettings, *, key: str) -> Accepted:
        """The settings are in force from the next step on."""
        return await self._inputs.judged(
            await self.submitted.new_settings(thread, settings, key=key)
        )

    async def send_message(self, thread: ThreadId, message: NewMessage, *, key: str) -> Accepted:
        """The message is in the inbox.

        Raises:  TurnOpenError: delivery `reject`, and a turn is open or a message queued.
        """
        return await self._inputs.judged(await self.submitted.message(thread, message, key=key))

    async def cancel(
        self, thread: ThreadId, turn: TurnId, call: CallId | None = None, *, key: str
    ) -> Accepted:
        """The open turn, or one call of it, was told to stop.

        Raises:  ConflictError: it is not open, or was told already.
        """
        return await self._inputs.judged(await self.submitted.stop(thread, turn, call, key=key))


class Submissions:
    """Commands of one tenant and actor; each returns once its events are durable.

    The answer is `Accepted` where the verdict came in time, or had to be known. It is an error
    where the verdict was void, or would certainly be.
    """

    def __init__(self, inputs: Inputs, views: Reads, maker: Maker, tenant: TenantId) -> None:
        self._inputs = inputs
        self._views = views
        self._maker = maker
        self._tenant = tenant

    async def create_thread(self, new: NewThread, *, key: str) -> Appended:
        """The events of a new thread are in the log; that no views are to be had is no hindrance.

        Raises:  as `Commands.create_thread`.
        """
        return await self._inputs.durable(await self.new_thread(new, key=key))

    async def configure(self, thread: ThreadId, settings: ThreadSettings, *, key: str) -> Appended:
        """The settings are in the log."""
        return await self._inputs.durable(await self.new_settings(thread, settings, key=key))

    async def send_message(self, thread: ThreadId, message: NewMessage, *, key: str) -> Appended:
        """The message is in the log."""
        return await self._inputs.durable(await self.message(thread, message, key=key))

    async def cancel(
        self, thread: ThreadId, turn: TurnId, call: CallId | None = None, *, key: str
    ) -> Appended:
        """The request to stop is in the log."""
        return await self._inputs.durable(await self.stop(thread, turn, call, key=key))

    async def cancelled_turn(self, thread: ThreadId, key: str) -> TurnId | None:
        """The turn that an earlier request with this key asked to stop; None: there was none."""
        event_id = self._maker.id_of(thread, "cancel.request", key)
        found = await self._views.find(self._tenant, thread, event_id)
        body = None if found is None else found.event.body
        return body.turn_id if isinstance(body, CancelRequested) else None

    # -- what is to be appended

    async def new_thread(self, new: NewThread, *, key: str) -> Input:
        """The events of a new thread, to be appended."""
        _check_key(key)
        thread, maker = new_thread_id(self._tenant, key), self._maker
        settings = await maker.settings(new.settings)
        message = None if new.message is None else await maker.content(new.message)
        created = maker.created(thread, new.title, key)

        def make(head: Seq) -> list[Event]:
            cause = created.event_id
            events = [created, maker.configured(thread, settings, key, head, cause=cause)]
            if message is not None:
                events.append(maker.message(thread, message, key, head, is_first=True))
            return events

        first = maker.id_of_first(thread, key)
        return Input(thread, make, NO_SEQ, created=created.event_id, first_message=first)

    async def new_settings(self, thread: ThreadId, settings: ThreadSettings, *, key: str) -> Input:
        """The settings, to be appended."""
        _check_key(key)
        row, maker = await self._row(thread), self._maker
        members = await maker.settings(settings)

        def make(head: Seq) -> list[Event]:
            return [maker.configured(thread, members, key, head)]

        return Input(thread, make, row.head, needs_verdict=True, seen_at=row.position)

    async def message(self, thread: ThreadId, message: NewMessage, *, key: str) -> Input:
        """The message, to be appended.

        Raises:  TurnOpenError: delivery `reject`, and the views show an open turn.
        """
        _check_key(key)
        row, maker = await self._row(thread), self._maker
        is_reject = message.delivery == "reject"
        if is_reject and row.status != "idle":
            event_id = maker.id_of(thread, "message.send", key)
            if await self._views.find(self._tenant, thread, event_id) is None:
                raise TurnOpenError("a turn is open: wait for it, or send with next_turn")
        content = await maker.content(message)

        def make(head: Seq) -> list[Event]:
            return [maker.message(thread, content, key, head)]

        return Input(thread, make, row.head, needs_verdict=is_reject, seen_at=row.position)

    async def stop(
        self, thread: ThreadId, turn: TurnId, call: CallId | None = None, *, key: str
    ) -> Input:
        """The request to stop, to be appended."""
        _check_key(key)
        row, maker = await self._row(thread), self._maker

        def make(head: Seq) -> list[Event]:
            return [maker.cancel(thread, turn, call, key, head)]

        return Input(thread, make, row.head, needs_verdict=True, seen_at=row.position)

    async def _row(self, thread: ThreadId) -> ThreadRow:
        row = await self._views.thread(self._tenant, thread)
        if row is None:
            raise NotFoundError(f"no thread {thread}")
        if row.status == "halted":
            raise ThreadNewerError("a newer version stopped the thread: upgrade this one")
        return row


def _check_key(key: str) -> None:
    if not 0 < len(key) <= IDEMPOTENCY_KEY_CHARS_MAX:
        raise RejectedError(f"an idempotency key has 1 to {IDEMPOTENCY_KEY_CHARS_MAX} characters")
