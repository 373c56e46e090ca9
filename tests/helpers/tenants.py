"""Every route of the gateway, what of a tenant can be named in a request to it, and by what key."""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.helpers.events import LOCAL, OTHER, event_id, thread_id
from tests.helpers.gateway_checks import MODEL, Json
from tests.helpers.service_world import World
from tests.helpers.thread_events import (
    MODEL as MODEL_REF,
)
from tests.helpers.thread_events import (
    configured,
    created,
    message,
    requested,
    responded,
    step_started,
    tool_started,
    turn_started,
)
from threadlog.api.keys import Scope
from threadlog.commands.requests import Appended
from threadlog.gateway.parameters import page_token, receipt_text
from threadlog.ids import Position, TenantId, ThreadId, derive
from threadlog.ports.views import ThreadPlace

Route = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that a request names.

    Shapes:  `target` and `body` hold names in angle brackets, which `Names` fills in. `status`: of
             the answer, whether the thing is another tenant's or nobody's. `status_own`: where the
             one who asks has it; None: that answer has no end. `appends`: to the asker's own
             thread, where the fold voids it.
    """

    what: str
    target: str
    body: Json | None = None
    status: int = 404
    appends: bool = False
    status_own: int | None = 200


def _of(path: str, **more: Any) -> tuple[Row, ...]:
    return (Row("thread", path.replace("{thread}", "<thread>"), **more),)


_T = "/v1/threads/{thread}"
_ON = {"body": {}, "status_own": 202}
_SAYS: Json = {"content": "hello", "delivery": "next_turn"}
_STOP: Json = {"queue": "keep", "turn_id": "<turn>"}
_RECEIPT = "receipt=<receipt>"

ROWS: dict[Route, tuple[Row, ...]] = {
    ("GET", "/v1/threads"): (
        Row("page", "/v1/threads?page=<page>", status=400),
        Row("before", "/v1/threads?before=<thread>"),
    ),
    ("GET", _T): (
        *_of(_T),
        Row("receipt", f"/v1/threads/<own>?{_RECEIPT}", status=400),
    ),
    ("PATCH", _T): _of(_T, **_ON),
    ("POST", f"{_T}/messages"): _of(f"{_T}/messages", body=_SAYS, status_own=202),
    ("POST", f"{_T}/cancel"): (
        *_of(f"{_T}/cancel", body=_STOP, status_own=202),
        *_of(f"{_T}/cancel", body={"queue": "keep"}, status_own=202),
        Row("turn", "/v1/threads/<own>/cancel", _STOP, 409, appends=True),
    ),
    ("POST", f"{_T}/calls/{{call}}/cancel"): (
        Row("thread", "/v1/threads/<thread>/calls/<call>/cancel", {}, status_own=202),
        Row("call", "/v1/threads/<own>/calls/<call>/cancel", {}, 409),
        Row("turn", "/v1/threads/<own>/calls/<call>/cancel", {"turn_id": "<turn>"}, 409, True),
    ),
    ("GET", f"{_T}/queue"): (
        *_of(f"{_T}/queue"),
        Row("receipt", f"/v1/threads/<own>/queue?{_RECEIPT}", status=400),
    ),
    ("GET", f"{_T}/events"): (
        *_of(f"{_T}/events"),
        *_of(f"{_T}/events?voids=1"),
        *_of(f"{_T}/events?since=-1"),
        Row("receipt", f"/v1/threads/<own>/events?{_RECEIPT}", status=400),
    ),
    ("GET", f"{_T}/stream"): (
        *_of(f"{_T}/stream?until=turn", status_own=None),
        Row("receipt", f"/v1/threads/<own>/stream?{_RECEIPT}", status=400),
    ),
    ("GET", f"{_T}/prompts/{{seq}}"): (
        Row("thread", "/v1/threads/<thread>/prompts/<seq>"),
        Row("event", "/v1/threads/<own>/prompts/<seq>"),
        Row("receipt", f"/v1/threads/<own>/prompts/<seq>?{_RECEIPT}", status=400),
    ),
    ("GET", f"{_T}/blobs/{{sha256}}"): (
        Row("thread", "/v1/threads/<thread>/blobs/<blob>"),
        Row("blob", "/v1/threads/<own>/blobs/<blob>"),
        Row("thread of an own blob", "/v1/threads/<thread>/blobs/<own_blob>"),
    ),
    ("GET", "/v1/usage"): (Row("thread", "/v1/usage?thread=<thread>"),),
}
"""A route that is in none of these three tables fails the tests: give it a row."""

NAMELESS: frozenset[Route] = frozenset(
    {
        ("GET", "/v1/info"),
        ("GET", "/v1/models"),
        ("POST", "/v1/threads"),
        ("POST", "/v1/sign-in"),
    }
)
"""Nothing that a tenant has can be named there."""
OPEN: frozenset[Route] = frozenset(
    {("GET", "/healthz"), ("GET", "/readyz"), ("POST", "/v1/sign-out")}
)
"""Whoever asks may: they say nothing of any tenant."""

SCOPE_OF: dict[Route, Scope | None] = {
    **dict.fromkeys(NAMELESS),
    **{route: "threads:read" if route[0] == "GET" else "threads:write" for route in ROWS},
    ("POST", "/v1/threads"): "threads:write",
    ("GET", f"{_T}/prompts/{{seq}}"): "content:read",
    ("GET", f"{_T}/blobs/{{sha256}}"): "content:read",
}


@dataclass(frozen=True, slots=True)
class Names:
    """What one tenant has, or what nobody has, beside what is the asker's own."""

    thread: str
    turn: str
    call: str
    seq: str
    blob: str
    receipt: str
    page: str
    own: str
    own_blob: str

    def text(self, template: str) -> str:
        """The template, filled in."""
        for name in self.__dataclass_fields__:
            template = template.replace(f"<{name}>", getattr(self, name))
        return template

    def body(self, row: Row) -> bytes | None:
        """The body of the row, filled in."""
        return None if row.body is None else self.text(json.dumps(row.body)).encode()


@dataclass(slots=True)
class Two:
    """Two tenants: LOCAL has a thread with a turn, OTHER asks and has a thread, too."""

    theirs: Names
    nobodys: Names
    foreign: ThreadId = field(default_factory=lambda: thread_id(5))


async def two_tenants(world: World, own: str) -> Two:
    """The names of what LOCAL has, and of nothing, for OTHER, whose thread is `own`."""
    [blob] = await world.blobs.put(LOCAL, [(b"a secret", "text/plain")])
    [own_blob] = await world.blobs.put(OTHER, [(b"my own", "text/plain")])
    foreign = thread_id(5)
    story = (created(), configured(model=MODEL_REF), message(), turn_started(), step_started())
    last = await world.go(*story, responded(calls=1), requested(), tool_started(), thread=foreign)
    await world.views.wait(await world.log.end())
    state = world.state(foreign)
    assert state.turn is not None
    position = Position(await world.log.end() - 1)

    def names(thread: str, turn: str, call: str, seq: str, sha: str, receipt: str) -> Names:
        place = ThreadPlace("2026-11-30T18:00:00.000Z", position, ThreadId(thread))
        key = b"signing" if thread == foreign else b"of nobody"
        token = page_token(place, TenantId(LOCAL), key)
        return Names(thread, turn, call, seq, sha, receipt, token, own, own_blob.sha256)

    def receipt_of(event: str) -> str:
        return receipt_text(Appended(foreign, event_id(event), position))

    theirs_receipt = receipt_text(Appended(foreign, last.event_id, position))
    [call] = state.turn.step.calls
    theirs = names(foreign, state.turn.turn_id, call.call_id, "4", blob.sha256, theirs_receipt)
    nobodys = names(
        derive("no thread"), derive("no turn"), derive("no call"), "9", "0" * 64, receipt_of("no")
    )
    return Two(theirs, nobodys, foreign)


NEW: Json = {"settings": {"model": MODEL}}
