"""Bytes that clients make this process hold: bodies in use, and answers until they are read.

The wire holds one piece of an answer at a time, but the answer itself lies here until its last byte
has left, and a client may take as long as it likes over each piece; so it may over its body.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from threadlog.errors import QuotaError
from threadlog.gateway.auth import Caller
from threadlog.ids import TenantId
from threadlog.limits import HELD_BYTES_MAX, HELD_BYTES_TENANT_MAX, SMALL_ANSWER_BYTES


@dataclass(slots=True)
class Held:
    """Bytes of bodies and answers, by tenant."""

    by_tenant: Counter[TenantId] = field(default_factory=Counter)
    total: int = 0

    def add(self, tenant: TenantId, size: int) -> None:
        """So many more; less where it is negative."""
        self.by_tenant[tenant] += size
        self.total += size
        if not self.by_tenant[tenant]:
            del self.by_tenant[tenant]


class Room:
    """Room for one body or answer, until it is given back. Made by `reserve`."""

    def __init__(self, held: Held, caller: Caller) -> None:
        self._held = held
        self._caller = caller
        self._size = 0

    def grow(self, size: int) -> None:
        """There is room for so many bytes more.

        Raises:  QuotaError: there is not; what there was before stays.
        """
        tenant = self._caller.credential.tenant
        is_over = self._held.by_tenant[tenant] + size > HELD_BYTES_TENANT_MAX
        if is_over or self._held.total + size > HELD_BYTES_MAX:
            self._caller.ports.meter.rejected("bytes")
            raise QuotaError(
                "bodies and large answers of before lie here still: end them, or read them",
                limit="bytes",
                retry_after_s=5,
            )
        self.fit(self._size + size)

    def fit(self, size: int) -> None:
        """It has this size after all."""
        self._held.add(self._caller.credential.tenant, size - self._size)
        self._size = size

    def release(self) -> None:
        """It is given back. Repeating it does nothing."""
        self.fit(0)


def reserve(request: Request, caller: Caller, size: int) -> Room:
    """Room for at most so many bytes.

    Raises:  QuotaError: clients have not read what they asked for before, or not sent it whole.
    """
    room = Room(request.app.state.held, caller)
    room.grow(size)
    return room


@contextmanager
def body_room(request: Request) -> Iterator[Room]:
    """Room for the body of a request whose caller is known, given back behind the block."""
    room = reserve(request, request.state.caller, 0)
    try:
        yield room
    finally:
        room.release()


def counted(request: Request, answer: Response) -> Response:
    """The answer, which counts until it was read if it is large.

    Raises:  QuotaError
    """
    if isinstance(answer, LargeAnswer) or len(answer.body) <= SMALL_ANSWER_BYTES:
        return answer
    room = reserve(request, request.state.caller, len(answer.body))
    large = LargeAnswer(bytes(answer.body), room, None)
    large.status_code, large.raw_headers = answer.status_code, answer.raw_headers
    return large


class LargeAnswer(Response):
    """Gives its room back when its last byte has left, or nobody is there to read it."""

    def __init__(
        self,
        content: bytes,
        room: Room,
        media_type: str | None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(content, 200, headers, media_type)
        room.fit(len(content))
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._room.release()
