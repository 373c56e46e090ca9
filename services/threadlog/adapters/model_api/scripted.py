"""The scripted model: a full model without a provider, for tests, the demo and benchmarks.

Renders in microseconds and holds no state but the script's (see `script`). `delay_ms` is real time.
"""

import asyncio
from collections.abc import Callable

import orjson

from threadlog.adapters.model_api.neutral import check_pairing, unavailable
from threadlog.adapters.model_api.script import Script, ScriptPlayer, ScriptReply
from threadlog.errors import LateError
from threadlog.events.content import BlobRef, ModelRef
from threadlog.ports.model import Delta, ModelReply, ModelRequest, always
from threadlog.thread.messages import AssistantMessage

PROVIDER = "scripted"
RENDERER = "scripted/1"
_PIECE_CHARS = 24


class ScriptedModel:
    """The model port over a script."""

    def __init__(self, script: Script) -> None:
        self._player = ScriptPlayer(script)

    @property
    def renderer(self) -> str:
        return RENDERER

    def render(self, request: ModelRequest) -> bytes:
        """Two lines of compact JSON: what chooses the reply, then all that the request holds."""
        return render(request)

    async def send(
        self,
        body: bytes,
        on_delta: Callable[[Delta], None],
        *,
        may_start: Callable[[], bool] = always,
    ) -> ModelReply:
        if not may_start():
            raise LateError("the request was not sent: its claim is too old")
        head = orjson.loads(body[: body.index(b"\n")])
        number = head["replies"]
        entry = self._player.reply(number, body)
        await _stream(entry, on_delta)
        return ModelReply(
            content=entry.parts(),
            calls=entry.model_calls(number),
            stop=entry.stop_reason(),
            usage=entry.tokens(),
            model=ModelRef(provider=head["provider"], name=head["model"]),
        )


def render(request: ModelRequest) -> bytes:
    """The body of a request to a scripted model; blobs stand in it by their hash."""
    check_pairing(request.messages)
    replies = sum(isinstance(message, AssistantMessage) for message in request.messages)
    head = {
        "replies": replies,
        "provider": request.model.provider,
        "model": request.model.name,
    }

    def plain(value: object) -> object:
        if isinstance(value, BlobRef) and value.sha256 not in request.blobs:
            return unavailable("content", value)
        return vars(value)

    rest = {
        "system": request.system_prompt,
        "tools": request.tools,
        "thinking": request.thinking,
        "output_tokens_max": request.output_tokens_max,
        "messages": request.messages,
    }
    return orjson.dumps(head) + b"\n" + orjson.dumps(rest, default=plain)


def pieces(text: str) -> list[str]:
    """`text` in the pieces in which it streams."""
    return [text[n : n + _PIECE_CHARS] for n in range(0, len(text), _PIECE_CHARS)]


def _whole(text: str) -> list[str]:
    """`text` in one piece: without a delay nobody sees it grow."""
    return [text] if text else []


async def _stream(entry: ScriptReply, on_delta: Callable[[Delta], None]) -> None:
    """The deltas went out, spread evenly over the entry's delay; the loop had its turn."""
    cut = pieces if entry.delay_ms else _whole
    deltas = [Delta("thinking", piece) for piece in cut(entry.thinking)]
    deltas += [Delta("text", piece) for piece in cut(entry.text)]
    pause_s = entry.delay_ms / 1_000 / (len(deltas) + 1)
    await asyncio.sleep(pause_s)
    for delta in deltas:
        on_delta(delta)
        if pause_s:
            await asyncio.sleep(pause_s)
