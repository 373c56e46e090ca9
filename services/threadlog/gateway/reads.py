"""Routes that read threads: lists, one thread, its inbox, its prompts and blobs, its usage."""

import asyncio
import hashlib
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Depends, Query, Request, Response

from threadlog.api.answers import (
    Fresh,
    ThreadAnswer,
    ThreadsBody,
    ThreadStatus,
)
from threadlog.api.reports import (
    PromptBody,
    QueueBody,
    QueuedBody,
    UsageBody,
    UsageLineBody,
)
from threadlog.errors import ConflictError, DeniedError, NotFoundError, RejectedError
from threadlog.events.input import MessageReceived
from threadlog.events.step import Manifest, StepStarted
from threadlog.gateway.auth import Caller, caller
from threadlog.gateway.large import LargeAnswer, reserve
from threadlog.gateway.parameters import (
    Cursor,
    Number,
    page_token,
    place_of,
    seq_of,
    sha256_of,
)
from threadlog.gateway.reading import Found, amounts_of, find, summary_of
from threadlog.gateway.strict import StrictRoute
from threadlog.ids import Position, Seq, ThreadId
from threadlog.limits import (
    PAGE_BYTES_MAX,
    PAGE_EVENTS_DEFAULT,
    PROMPT_BYTES_MAX,
    READ_EVENTS_MAX,
    THREADS_SCANNED_MAX,
    USAGE_LINES_MAX,
)
from threadlog.ports.usage import (
    UsageGroup,
    UsageRow,
    UsageTotals,
)
from threadlog.ports.views import (
    StoredEvent,
    ThreadPlace,
    ThreadRow,
)
from threadlog.runtime.load import Loader
from threadlog.runtime.prompts import rebuild

router = APIRouter(route_class=StrictRoute)
ReadCaller = Annotated[Caller, Depends(caller("threads:read"))]
ContentCaller = Annotated[Caller, Depends(caller("content:read"))]
Receipt = Annotated[
    str | None, Query(description="Wait until the views have passed what it is the receipt of.")
]
Limit = Annotated[Number, Query(ge=1, le=READ_EVENTS_MAX)]
_GROUPS: tuple[UsageGroup, ...] = get_args(UsageGroup)
_BLOB_HEADERS = {
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private, max-age=31536000, immutable",
}
_COPIES = 6
"""How often a request lies in memory while it is rebuilt: parts, body, text, answer."""
_PROMPT: dict[int | str, dict[str, Any]] = {200: {"model": PromptBody}}
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "the content"}
}


@router.get("/v1/threads")
async def list_threads(
    reader: ReadCaller,
    limit: Limit = PAGE_EVENTS_DEFAULT,
    page: Annotated[str | None, Query(description="The `next` of an answer.")] = None,
    before: Annotated[str | None, Query(description="Threads less recent than this one.")] = None,
    status: ThreadStatus | None = None,
) -> ThreadsBody:
    """Threads by last activity, newest first."""
    place = await _place(reader, page, before)
    rows, scanned, has_more = await _scan(reader, place, limit, status)
    ports, tenant = reader.ports, reader.credential.tenant
    token = None
    if has_more is not None:
        token = page_token(has_more, tenant, ports.signing_key())
    return ThreadsBody(
        as_of_seq=None,
        behind_ms=await ports.freshness.known(),
        threads=tuple(map(summary_of, rows)),
        next=token,
        scanned=scanned,
    )


async def _place(reader: Caller, page: str | None, before: str | None) -> ThreadPlace | None:
    if page is not None and before is not None:
        raise RejectedError("query: page and before exclude each other")
    if page is not None:
        return place_of(page, reader.credential.tenant, reader.ports.signing_key())
    return None if before is None else (await find(reader, before)).row.place


async def _scan(
    reader: Caller, place: ThreadPlace | None, limit: int, status: ThreadStatus | None
) -> tuple[list[ThreadRow], int, ThreadPlace | None]:
    """Rows that fit, how many were looked at, and where to go on; None: those are all."""
    views, tenant = reader.ports.views, reader.credential.tenant
    found: list[ThreadRow] = []
    scanned = 0
    while scanned < THREADS_SCANNED_MAX:
        wanted = limit + 1 if status is None else READ_EVENTS_MAX
        rows = await views.threads(tenant, limit=wanted, before=place)
        for row in rows:
            if len(found) == limit:
                return found, scanned, place
            scanned += 1
            place = row.place
            if status is None or row.status == status:
                found.append(row)
        if len(rows) < wanted:
            return found, scanned, None
    return found, scanned, place


@router.get("/v1/threads/{thread}")
async def get_thread(reader: ReadCaller, thread: str, receipt: Receipt = None) -> ThreadAnswer:
    """One thread: its status, its head, its open turn, what it was billed."""
    found = await find(reader, thread, receipt)
    return ThreadAnswer(**dict(summary_of(found.row)), **_fresh(found))


def _fresh(found: Found) -> dict[str, Any]:
    """The members of every read."""
    fresh = Fresh(as_of_seq=found.row.head, behind_ms=found.behind_ms, receipt=found.verdict)
    return dict(fresh)


@router.get("/v1/threads/{thread}/queue")
async def list_messages(
    reader: ReadCaller,
    thread: str,
    limit: Limit = PAGE_EVENTS_DEFAULT,
    since: Annotated[Cursor, Query(description="Messages behind this seq.")] = -1,
    receipt: Receipt = None,
) -> QueueBody:
    """The inbox: messages that no turn has taken yet."""
    found = await find(reader, thread, receipt)
    row, ports = found.row, reader.ports
    loader = Loader(ports.views, ports.snapshots)
    # It may be ahead of the row: then the answer is as of there.
    loaded = await loader.load(row.tenant_id, row.thread_id, Position(row.position + 1))
    messages: list[QueuedBody] = []
    size, has_more = 0, False
    for queued in loaded.state.queue:
        if queued.seq <= since:
            continue
        if len(messages) == limit or size > PAGE_BYTES_MAX:
            has_more = True
            break
        stored = await _event(reader, row.thread_id, queued.seq)
        assert isinstance(stored.event.body, MessageReceived)
        size += len(stored.event.data)
        messages.append(
            QueuedBody(
                message_id=queued.message_id,
                seq=queued.seq,
                delivery=queued.delivery,
                actor=stored.event.actor,
                occurred_at=stored.event.occurred_at,
                content=[p.model_dump(mode="json") for p in stored.event.body.content],
            )
        )
    fresh = _fresh(found) | {"as_of_seq": loaded.state.head}
    return QueueBody(messages=tuple(messages), has_more=has_more, **fresh)


async def _event(reader: Caller, thread: ThreadId, seq: int) -> StoredEvent:
    """The accepted event of this seq.

    Raises:  NotFoundError
    """
    views, tenant = reader.ports.views, reader.credential.tenant
    page = await views.events(tenant, thread, first=Seq(seq), last=Seq(seq), limit=1)
    if not page:
        raise NotFoundError("no event")
    return page[0]


@router.get("/v1/threads/{thread}/prompts/{seq}", response_class=Response, responses=_PROMPT)
async def get_prompt(
    request: Request, reader: ContentCaller, thread: str, seq: str, receipt: Receipt = None
) -> Response:
    """The model request that a `step.started` announced, rebuilt, and compared with its hash."""
    number = seq_of(seq)
    found = await find(reader, thread, receipt)
    claim = await _event(reader, found.row.thread_id, number)
    body = claim.event.body
    if not isinstance(body, StepStarted):
        raise NotFoundError("no step.started")
    renderer = reader.ports.renderer_named(body.manifest.renderer)
    if renderer is None:
        raise ConflictError("this version cannot render what this request was rendered with")
    size = body.manifest.request_bytes
    if size > PROMPT_BYTES_MAX:
        raise DeniedError(f"the request has {size:,} bytes; {PROMPT_BYTES_MAX:,} are rebuilt here")
    room = reserve(request, reader, _COPIES * size)
    try:
        own = reader.ports.reader(reader.credential.tenant)
        events = (stored.event async for stored in own.events(found.row.thread_id, last=number))
        rebuilt = await rebuild(events, claim.event, renderer, reader.ports.blobs)
        answer = await asyncio.to_thread(_prompt, number, body.manifest, rebuilt, found)
        return LargeAnswer(answer, room, "application/json")
    except BaseException:
        room.release()
        raise


def _prompt(seq: int, manifest: Manifest, rebuilt: bytes, found: Found) -> bytes:
    rebuilt_sha256 = hashlib.sha256(rebuilt).hexdigest()
    body = PromptBody(
        seq=seq,
        renderer=manifest.renderer,
        request_sha256=manifest.request_sha256,
        rebuilt_sha256=rebuilt_sha256,
        matches=rebuilt_sha256 == manifest.request_sha256,
        request=rebuilt.decode("utf-8", "replace"),
        **_fresh(found),
    )
    return body.model_dump_json().encode()


@router.get("/v1/threads/{thread}/blobs/{sha256}", response_class=Response, responses=_BYTES)
async def get_blob(request: Request, reader: ContentCaller, thread: str, sha256: str) -> Response:
    """The content of a blob, whole, as bytes that no browser shows."""
    name = sha256_of(sha256)
    await find(reader, thread)
    size = await reader.ports.blobs.size(reader.credential.tenant, name)
    if size is None:
        raise NotFoundError("no blob")
    room = reserve(request, reader, size)
    try:
        content = await reader.ports.blobs.get(reader.credential.tenant, name)
        if content is None:
            raise NotFoundError("no blob")
        return LargeAnswer(content, room, "application/octet-stream", _BLOB_HEADERS)
    except BaseException:
        room.release()
        raise


@router.get("/v1/usage")
async def get_usage(
    reader: ReadCaller,
    by: Annotated[
        str, Query(description="Of tenant, thread, turn, model, day, hour; commas.")
    ] = "model",
    thread: Annotated[str | None, Query(description="Only of this thread.")] = None,
) -> UsageBody:
    """What was billed: exact sums, from what the projection has counted."""
    groups = _groups(by)
    found = None if thread is None else await find(reader, thread)
    only = None if found is None else found.row.thread_id
    views, tenant = reader.ports.views, reader.credential.tenant
    rows = await views.usage(tenant, groups, only)
    total = next(iter(await views.usage(tenant, (), only)), UsageRow((), UsageTotals()))
    if len(rows) > USAGE_LINES_MAX:
        raise RejectedError(
            f"query.by: {len(rows)} groups, more than {USAGE_LINES_MAX}: ask for coarser ones, or "
            "for one thread"
        )
    lines = tuple(
        UsageLineBody(
            group=dict(zip(groups, row.group, strict=True)),
            usage=amounts_of(row.totals),
            tool_ms=row.tool_ms,
        )
        for row in rows
    )
    return UsageBody(
        as_of_seq=None if found is None else found.row.head,
        behind_ms=await reader.ports.freshness.known() if found is None else found.behind_ms,
        by=groups,
        lines=lines,
        total=amounts_of(total.totals),
        total_tool_ms=total.tool_ms,
    )


def _groups(text: str) -> tuple[UsageGroup, ...]:
    """The groupings that `text` names, with commas between.

    Raises:  RejectedError: one of them is none, or named twice.
    """
    words = text.split(",")
    chosen = tuple(g for word in words for g in _GROUPS if g == word)
    if len(chosen) != len(words) or len(set(chosen)) != len(chosen):
        raise RejectedError(f"query.by: each of {', '.join(_GROUPS)} at most once")
    return chosen
