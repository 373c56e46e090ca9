"""Answers that may be large: what clients have not read of them yet is bounded in this process.

The wire holds one piece of an answer at a time, but the answer itself lies here until its last byte
has left, and a client may take as long as it likes over each piece.
"""

from collections import Counter
from dataclasses import dataclass, field

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from threadlog.errors import QuotaError
from threadlog.gateway.auth import Caller
from threadlog.ids import TenantId
from threadlog.limits import HELD_BYTES_MAX, HELD_BYTES_TENANT_MAX


@dataclass(slots=True)
class Held:
    """Bytes of answers, by tenant."""

    by_tenant: Counter[TenantId] = field(default_factory=Counter)
    total: int = 0

    def add(self, tenant: TenantId, size: int) -> None:
        """So many more; less where it is negative."""
        self.by_tenant[tenant] += size
        self.total += size
        if not self.by_tenant[tenant]:
            del self.by_tenant[tenant]


class Room:
    """Room for one answer, until it is given back. Made by `reserve`."""

    def __init__(self, held: Held, tenant: TenantId, size: int) -> None:
        self._held = held
        self._tenant = tenant
        self._size = size
        held.add(tenant, size)

    def fit(self, size: int) -> None:
        """The answer has this size after all."""
        self._held.add(self._tenant, size - self._size)
        self._size = size

    def release(self) -> None:
        """It is given back. Repeating it does nothing."""
        self.fit(0)


def reserve(request: Request, reader: Caller, size: int) -> Room:
    """Room for an answer of at most so many bytes.

    Raises:  QuotaError: clients have not read what they asked for before.
    """
    held: Held = request.app.state.held
    tenant = reader.credential.tenant
    is_over = held.by_tenant[tenant] + size > HELD_BYTES_TENANT_MAX
    if is_over or held.total + size > HELD_BYTES_MAX:
        reader.ports.meter.rejected("bytes")
        raise QuotaError(
            "large answers of before have not been read yet: read them, or close them",
            limit="bytes",
            retry_after_s=5,
        )
    return Room(held, tenant, size)


class LargeAnswer(Response):
    """Gives its room back when its last byte has left, or nobody is there to read it."""

    def __init__(
        self, content: bytes, room: Room, media_type: str, headers: dict[str, str] | None = None
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
