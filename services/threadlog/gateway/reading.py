"""What routes share: rows as answers, receipts that are waited for, cursors that are checked."""

import asyncio
import contextlib
from dataclasses import dataclass

from threadlog.api.answers import (
    AmountsBody,
    ThreadSummary,
    VerdictBody,
)
from threadlog.commands.inputs import check_intent
from threadlog.errors import (
    CursorInvalidError,
    CursorUnknownError,
    NotFoundError,
    ViewsBehindError,
)
from threadlog.gateway.auth import Caller
from threadlog.gateway.parameters import receipt_of, thread_id
from threadlog.gateway.waiting import room_to_wait, waited
from threadlog.ids import Position, TenantId, ThreadId
from threadlog.limits import RECEIPT_MS
from threadlog.ports.notify import Advanced
from threadlog.ports.usage import UsageTotals
from threadlog.ports.views import ThreadRow, Views

_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Found:
    """A thread as it was read, and how fresh that is."""

    row: ThreadRow
    behind_ms: int
    verdict: VerdictBody | None


async def find(caller: Caller, thread: str, receipt: str | None = None) -> Found:
    """The thread that the address names, once the views have passed the receipt.

    Raises:  NotFoundError: absent or another tenant's. ViewsBehindError: not passed in time.
    """
    name, tenant = thread_id(thread), caller.credential.tenant
    verdict = None if receipt is None else await _verdict(caller, name, receipt)
    row = await caller.ports.views.thread(tenant, name)
    if row is None:
        raise NotFoundError(f"no thread {name}")
    if verdict is not None and verdict.seq is None and verdict.void is None:
        raise CursorInvalidError("receipt: it is not one of this thread")
    return Found(row, await caller.ports.freshness.of(tenant, name), verdict)


async def _verdict(caller: Caller, thread: ThreadId, receipt: str) -> VerdictBody:
    """What the fold says of the receipt's event; neither seq nor void: the thread has none such.

    Raises:  MismatchError: another request with the same key came first, and is in force.
    """
    position, event_id, intent = receipt_of(receipt)
    tenant, views = caller.credential.tenant, caller.ports.views
    await reached(caller, thread, position)
    stored = await views.find(tenant, thread, event_id)
    if stored is None:
        return VerdictBody(event_id=event_id, seq=None)
    check_intent(stored, intent)
    return VerdictBody(event_id=event_id, seq=stored.seq, void=stored.void)


async def reached(caller: Caller, thread: ThreadId, position: Position) -> None:
    """The views have everything of the thread up to `position`.

    Raises:  ViewsBehindError: not in the time that a read is given. Others: as `waited`.
    """
    ports, tenant = caller.ports, caller.credential.tenant
    try:
        with room_to_wait(caller):
            work = _reached(ports.views, tenant, thread, position)
            await waited(caller, work, RECEIPT_MS / 1_000)
    except TimeoutError:
        raise ViewsBehindError(
            "the views have not passed the receipt yet: it is in the log, ask again"
        ) from None


async def known_cursor(caller: Caller, found: Found, since: int) -> Found:
    """The thread, whose head has reached `since`; waited for, since another reader may be ahead.

    Raises:  CursorUnknownError: it has not, for as long as a read is given.
             TransientError: this process is to end; another gateway may know. Others: as `waited`.
    """
    thread, tenant = found.row.thread_id, caller.credential.tenant
    if since <= found.row.head:
        return found
    ports = caller.ports
    try:
        with room_to_wait(caller):
            row = await waited(caller, _moved(caller, thread, since), RECEIPT_MS / 1_000)
        return Found(row, found.behind_ms, found.verdict)
    except TimeoutError:
        row = await ports.views.thread(tenant, thread) or found.row
    if row.head >= since:
        return Found(row, found.behind_ms, found.verdict)
    raise CursorUnknownError(
        f"the thread ends at seq {row.head}: begin there, or before it", head_seq=row.head
    )


async def _reached(views: Views, tenant: TenantId, thread: ThreadId, position: Position) -> None:
    await views.reached(tenant, thread, position)


async def _moved(caller: Caller, thread: ThreadId, since: int) -> ThreadRow:
    """The thread's row, once its head has reached `since`."""
    tenant, views = caller.credential.tenant, caller.ports.views
    frames = caller.ports.notify.listen(tenant, thread)
    try:
        while True:
            row = await views.thread(tenant, thread)
            if row is not None and row.head >= since:
                return row
            # Frames may be lost: it looks again by itself, too.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    while not isinstance(await anext(frames), Advanced):
                        pass
    finally:
        close = getattr(frames, "aclose", None)
        if close is not None:
            await close()


def summary_of(row: ThreadRow) -> ThreadSummary:
    """The row as it is shown."""
    names = ThreadSummary.model_fields.keys() - {"usage"}
    members = {name: getattr(row, name) for name in names}
    return ThreadSummary(**members, usage=amounts_of(row.usage))


def amounts_of(totals: UsageTotals) -> AmountsBody:
    """The sums as they are shown."""
    return AmountsBody(**{name: getattr(totals, name) for name in AmountsBody.model_fields})
