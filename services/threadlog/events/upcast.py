"""Upcasters: pure functions that lift a body of an older version to the next one.

A version that shipped never changes its meaning; a new meaning is a new version with an upcaster
here. Version 1 of every type is the newest, so the table is empty.
"""

from collections.abc import Callable, Mapping

from threadlog.events.catalog import CATALOG
from threadlog.events.envelope import Body

Upcaster = Callable[[Body], Body]
UPCASTERS: Mapping[tuple[str, int], Upcaster] = {}
"""(type, version n) -> body of version n to body of version n + 1."""


def upcast(body: Body, upcasters: Mapping[tuple[str, int], Upcaster] = UPCASTERS) -> Body:
    """The body in the newest version that this reader has upcasters for.

    Raises:  AssertionError: an upcaster did not raise the version by one (our bug).
    """
    while (lift := upcasters.get((body.TYPE, body.VERSION))) is not None:
        lifted = lift(body)
        assert lifted.TYPE == body.TYPE
        assert lifted.VERSION == body.VERSION + 1
        body = lifted
    return body


def lookup(event_type: str, version: int) -> type[Body] | None:
    """The class that decodes this type and version, or None when it is unknown or newer."""
    return CATALOG.get((event_type, version))
