"""How an input gets into the log: looked up, appended, and judged.

An id that was used before is never a second input: it is found in the views, or the fold voids the
copy and it is found then. What was accepted under the id answers, if it asked for the same.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from threadlog.commands.requests import Accepted, Appended
from threadlog.errors import (
    ConflictError,
    CorruptError,
    MismatchError,
    NotFoundError,
    TransientError,
    TurnOpenError,
    ViewsBehindError,
    VoidError,
)
from threadlog.events.envelope import Event
from threadlog.ids import NO_POSITION, EventId, Position, Seq, TenantId, ThreadId
from threadlog.limits import INPUT_WINDOW
from threadlog.ports.log import Appender, Receipt
from threadlog.ports.views import (
    Reads,
    StoredEvent,
)
from threadlog.telemetry.scope import learn

JUDGED_S = 30.0
"""How long a command waits for the views to judge what it appended."""
VERDICT_S = 1.0
"""How long the gateway waits for a verdict that its caller should know; then 202 says less."""
FAR_S = 5.0
"""How long it waits where the input may be judged stale, which 202 must not hide."""
OTHER_BODY = "this idempotency key was used with another body: use a new key"
INTENT_BYTES = 9
"""With position and id a receipt has 33 bytes, which base64 spells in one way alone."""
_STOPPED = "stopped by an error: see the log of the projection"
_ATTEMPTS_MAX = 4
"""How often an input is looked up and appended again after it was judged stale."""


@dataclass(frozen=True, slots=True)
class Input:
    """Events to be appended.

    Shapes:  `make`: head of the view in which the ids were looked up -> the events, which carry it.
             `head`, `seen_at`: of the thread's row when it was looked at. `created`: the id of the
             `thread.created` among them when they make the thread, with `first_message` the id that
             a message would have; None: the thread was there.
             `needs_verdict`: its caller is told of a conflict, where one is known in time.
    """

    thread: ThreadId
    make: Callable[[Seq], list[Event]]
    head: Seq
    needs_verdict: bool = False
    seen_at: Position = NO_POSITION
    created: EventId | None = None
    first_message: EventId | None = None


class Inputs:
    """Appends inputs of one tenant."""

    def __init__(self, log: Appender, views: Reads, tenant: TenantId) -> None:
        self._log = log
        self._views = views
        self._tenant = tenant

    async def judged(self, given: Input) -> Accepted:
        """The input is in the log and was accepted.

        Raises:  ConflictError: it was void. TransientError: no verdict in time; it is in the log.
        """
        head = given.head
        for attempt in range(_ATTEMPTS_MAX):
            events = given.make(head)
            if (known := await self._known(given, events, is_again=attempt > 0)) is not None:
                return known
            receipts = await self._log.append(events)
            if (accepted := await self._verdict(given.thread, events, receipts)) is not None:
                return accepted
            head = await self._head(given.thread)
        raise ConflictError("the thread takes too many inputs at once: try again")

    async def durable(self, given: Input) -> Appended:
        """The input is in the log; it was accepted, or nothing is known against it.

        Effects: waits for the verdict, for `VERDICT_S`, where its caller should know; for `FAR_S`,
                 where the views may be so far behind that it is judged stale.
        Raises:  ConflictError: it was void. ViewsBehindError: it may be, and nobody knows yet.
        """
        learn(thread=given.thread)
        events = given.make(given.head)
        try:
            known = await self._known(given, events, is_again=False)
        except TransientError:
            if given.created is None:
                raise
            # A new thread needs no views: if its id was used, the fold voids the copies.
            known = None
        if known is not None:
            return known
        receipts = await self._log.append(events)
        last = receipts[-1]
        done = Appended(given.thread, last.event_id, last.position, intent=intent_of(events[-1]))
        is_far = given.created is None and last.position - given.seen_at > INPUT_WINDOW
        if not (given.needs_verdict or is_far):
            return done
        try:
            async with asyncio.timeout(FAR_S if is_far else VERDICT_S):
                accepted = await self._verdict(given.thread, events, receipts)
        except (TimeoutError, TransientError):
            if not is_far:
                # It is in the log: that nobody can judge it now takes nothing back.
                return done
            raise ViewsBehindError(
                f"the views are behind: the input is in the log, in thread {given.thread}, and "
                "whether it counts is not known yet; repeat it with the same key"
            ) from None
        if accepted is not None:
            return accepted
        return await self.judged(replace(given, head=await self._head(given.thread)))

    async def _known(
        self, given: Input, events: Sequence[Event], *, is_again: bool
    ) -> Accepted | None:
        """What was accepted before under these ids, if it was the same; None: nothing was."""
        if given.created is None or is_again:
            found = await self._find(given.thread, events[-1].event_id)
            if found is None or found.void == "stale":
                return None
            return _answer(found, events[-1])
        if await self._find(given.thread, given.created) is None:
            return None
        # The key made this thread: with a message exactly if there is one now.
        assert given.first_message is not None
        had_message = await self._find(given.thread, given.first_message) is not None
        if had_message != (events[-1].event_id == given.first_message):
            raise MismatchError(OTHER_BODY)
        return await self._repeated(given.thread, events)

    async def _verdict(
        self, thread: ThreadId, events: Sequence[Event], receipts: Sequence[Receipt]
    ) -> Accepted | None:
        """The accepted input; None: it was judged stale.

        Raises:  ConflictError: it is void. TransientError: the views do not follow the log.
        """
        last = receipts[-1]
        try:
            async with asyncio.timeout(JUDGED_S):
                await self._views.reached(self._tenant, thread, last.position)
        except TimeoutError as error:
            raise TransientError(
                f"the input is in the log, in thread {thread}, but no projection has judged it in "
                f"{JUDGED_S:.0f} s: do not send it again, see that one runs, look at the thread"
            ) from error
        judged = await self._found(thread, last.event_id)
        if judged.void == "stale":
            return None
        if judged.void == "repeat" or judged.position < receipts[0].position:
            return await self._repeated(thread, events)
        return accepted_of(judged)

    async def _repeated(self, thread: ThreadId, events: Sequence[Event]) -> Accepted:
        """What was accepted before under these ids, if it was the same."""
        known = [_answer(await self._found(thread, e.event_id), e) for e in events]
        return known[-1]

    async def _find(self, thread: ThreadId, event_id: EventId) -> StoredEvent | None:
        return await self._views.find(self._tenant, thread, event_id)

    async def _found(self, thread: ThreadId, event_id: EventId) -> StoredEvent:
        found = await self._find(thread, event_id)
        if found is None:
            # The view has passed its position without a judgement: the thread was given up there.
            raise CorruptError(f"thread {thread} was {_STOPPED}")
        return found

    async def _head(self, thread: ThreadId) -> Seq:
        row = await self._views.thread(self._tenant, thread)
        if row is None:
            raise NotFoundError(f"no thread {thread}")
        return row.head


def intent_of(event: Event) -> bytes:
    """A digest of what an input asks for: equal for two looks at the same request."""
    body = event.body.model_copy(update={"base_seq": 0})
    asked = f"{event.type}\n{body.model_dump_json()}"
    return hashlib.sha256(asked.encode()).digest()[:INTENT_BYTES]


def check_intent(found: StoredEvent, intent: bytes) -> None:
    """Nothing, if the stored event is the one that was asked for.

    Raises:  MismatchError: another request with the same key is in force.
    """
    if intent_of(found.event) != intent:
        raise MismatchError(OTHER_BODY)


def _answer(found: StoredEvent, wanted: Event) -> Accepted:
    """The stored event answers a repeated key, if it asks for the same."""
    check_intent(found, intent_of(wanted))
    return accepted_of(found)


def accepted_of(found: StoredEvent) -> Accepted:
    """The verdict on a stored event.

    Raises:  ConflictError: it is void. CorruptError: its thread was stopped there.
    """
    event = found.event
    if found.seq is not None:
        return Accepted(
            event.thread_id, event.event_id, found.position, found.seq, intent=intent_of(event)
        )
    raise void_error(event.thread_id, found.void)


def void_error(thread: ThreadId, reason: str | None) -> ConflictError | CorruptError:
    """The error that tells of an input which was judged void for this reason.

    It lies in the log, and so does its key: unlike one that was refused, it cannot be repeated.
    """
    if reason == "stopped":
        return CorruptError(f"thread {thread} was {_STOPPED}")
    if reason == "turn_open":
        return TurnOpenError(
            "a turn was open when this message was judged, and its idempotency key is used up: "
            "send it with a new key, once no turn is open or with next_turn"
        )
    return VoidError(f"not accepted: {reason}; a new request needs a new idempotency key")
