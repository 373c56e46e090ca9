"""Model requests: what one is made of, its manifest, and making a past one again.

Pure but for the blobs that `rebuild` loads. A request is logged as its manifest alone, and the same
accepted events always give the same bytes (DESIGN law 6).
"""

import asyncio
import hashlib
from collections.abc import AsyncIterable
from typing import get_args

from threadlog.errors import NotFoundError
from threadlog.events.envelope import Event
from threadlog.events.step import Manifest, StepStarted
from threadlog.events.thread import ThinkingLevel
from threadlog.ports.blobs import Blobs
from threadlog.ports.model import ModelRequest, Renderer, ToolSpec
from threadlog.runtime.prompt_content import Content
from threadlog.thread.fold import fold
from threadlog.thread.messages import Message
from threadlog.thread.state import Config, ThreadState
from threadlog.thread.tool_text import TOOL_DESCRIPTION, TOOL_NAME, TOOL_PARAMETERS

_TOOLS = {TOOL_NAME: ToolSpec(TOOL_NAME, TOOL_DESCRIPTION, TOOL_PARAMETERS)}

_LEVELS: dict[str, ThinkingLevel] = {level: level for level in get_args(ThinkingLevel)}
"""Levels known here; one that a later version recorded asks for the provider's default."""


def model_request(config: Config, content: Content, messages: tuple[Message, ...]) -> ModelRequest:
    """The request with these messages under these settings."""
    assert config.model is not None
    system = content.system_prompt
    return ModelRequest(
        model=config.model,
        system_prompt=None if system is None else content.text(system),
        tools=tuple(_TOOLS[name] for name in config.tools if name in _TOOLS),
        messages=messages,
        thinking=_LEVELS.get(config.thinking or ""),
        output_tokens_max=config.output_tokens_max,
        blobs=content.found_blobs(),
    )


def manifest(request: ModelRequest, rendered: bytes, renderer: str) -> Manifest:
    """What the claim of the request says of it."""
    system = request.system_prompt
    tools = "\n".join(f"{t.name}\n{t.description}\n{t.parameters}" for t in request.tools)
    return Manifest(
        from_seq=0,
        system_sha256=None if system is None else _sha256(system.encode()),
        tools_sha256=_sha256(tools.encode()),
        request_sha256=_sha256(rendered),
        request_bytes=len(rendered),
        renderer=renderer,
    )


async def rebuild(
    accepted: AsyncIterable[Event], claim: Event, model: Renderer, blobs: Blobs
) -> bytes:
    """The exact bytes of the request that `claim` announced; its manifest has their hash.

    Shapes:  `claim` is a `step.started` among `accepted`, the thread's accepted events from seq 0.
    Effects: keeps what the request needs alone, and renders on another thread: a long history
             would fill memory, a large request would stop the loop for long.
    Raises:  NotFoundError: `claim` is not among them.
    """
    body = claim.body
    assert isinstance(body, StepStarted)
    content, state = Content(), ThreadState(claim.tenant_id, claim.thread_id)
    async for event in accepted:
        if event.event_id == claim.event_id:
            break
        content.add(event)
        state = fold(state, event)
    else:
        raise NotFoundError("the claim is not among these events")
    messages = content.transcript.messages((), body.admits)
    await content.load(blobs, claim.tenant_id, content.missing(messages))
    request = model_request(state.config, content, messages)
    return await asyncio.to_thread(model.render, request)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
