"""The blocks of one reply of Anthropic's messages endpoint, put together from what a stream brings.

Text, thinking with its signature, and calls are told apart; arguments are the model's own text,
whether JSON or not. Every other block is kept as the provider sent it, byte for byte, since it
wants it back so. A block whose pieces cannot be joined for certain is kept as the list of them,
which is no block and is never sent back.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from threadlog import limits
from threadlog.adapters.model_api.call_assembly import short
from threadlog.adapters.model_api.failures import malformed, too_large
from threadlog.adapters.model_api.json_text import loads, member_texts, whole
from threadlog.events.content import NativePart, OutputPart, TextPart, ThinkingPart
from threadlog.events.step import ModelCall
from threadlog.ports.model import Delta

Json = dict[str, object]
AsItCame = Callable[[], str]
"""The JSON of an object to the byte; looked for only where it has to be kept."""
_SPOKEN = ("text", "thinking")


@dataclass(slots=True)
class _Block:
    """One block. `begun`: how it began, as JSON text; `pieces`: its text, thinking or arguments."""

    index: object
    kind: str
    begun: str
    provider_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    signature: list[str] = field(default_factory=list)
    deltas: list[str] = field(default_factory=list)


class Blocks:
    """The blocks while they arrive; `on_delta` is called for each piece of text."""

    def __init__(self, provider: str, on_delta: Callable[[Delta], None]) -> None:
        self._provider = provider
        self._on_delta = on_delta
        self._blocks: list[_Block] = []
        self._calls_count = 0
        self.content_bytes = 0
        """All that is kept of them."""

    def begin(self, index: object, block: Json, as_it_came: AsItCame) -> None:
        """`block` has begun.

        Raises:  ModelError: malformed, or more blocks or calls than a step may have.
        """
        kind = block.get("type")
        if not isinstance(kind, str):
            raise malformed("a block of the reply has no type")
        new = _Block(index, kind, "" if kind in _SPOKEN else as_it_came())
        if kind == "tool_use":
            new.provider_id = short("id", block.get("id"), limits.PROVIDER_CALL_ID_CHARS_MAX)
            new.name = short("name", block.get("name"), limits.TOOL_NAME_CHARS_MAX)
            self._calls_count += 1
        if self._calls_count > limits.CALLS_PER_STEP_MAX:
            raise too_large(f"the reply has more than {limits.CALLS_PER_STEP_MAX} tool calls")
        if len(self._blocks) - self._calls_count >= limits.REPLY_PARTS_MAX:
            raise too_large(f"the reply was cut at {limits.REPLY_PARTS_MAX} parts")
        self._blocks.append(new)
        self.content_bytes += _bytes(new.begun)
        if kind in _SPOKEN:
            self._say(new, kind, block.get(kind))
            self._sign(new, block.get("signature"))

    def add(self, index: object, delta: Json, as_it_came: AsItCame) -> None:
        """`delta` belongs to the block begun last under `index`.

        Raises:  ModelError: malformed, no block was begun so.
        """
        block = next((b for b in reversed(self._blocks) if b.index == index), None)
        if block is None:
            raise malformed("a piece of the reply belongs to no block")
        match block.kind, delta.get("type"):
            case "text", "text_delta":
                self._say(block, "text", delta.get("text"))
            case "thinking", "thinking_delta":
                self._say(block, "thinking", delta.get("thinking"))
            case "thinking", "signature_delta":
                self._sign(block, delta.get("signature"))
            case "tool_use", "input_json_delta":
                self._keep(block.pieces, delta.get("partial_json"))
            case "text" | "thinking" | "tool_use", _:
                pass  # what a later version says about these, citations for one, is not kept
            case _:
                self._keep(block.deltas, as_it_came())

    def content(self) -> tuple[OutputPart, ...]:
        """Everything but the calls, in the model's order, as far as it came.

        Raises:  ModelError: too_large, a signature that no event may hold.
        """
        parts = (self._part(block) for block in self._blocks if block.kind != "tool_use")
        return tuple(part for part in parts if part is not None)

    def calls(self) -> tuple[ModelCall, ...]:
        """The calls, in the model's order, as far as they came."""
        return tuple(
            ModelCall(
                provider_call_id=whole(block.provider_id),
                name=whole(block.name),
                arguments=whole("".join(block.pieces) or _input(block.begun)),
            )
            for block in self._blocks
            if block.kind == "tool_use"
        )

    def _say(self, block: _Block, kind: str, value: object) -> None:
        if self._keep(block.pieces, value):
            self._on_delta(Delta(kind, whole(block.pieces[-1])))

    def _sign(self, block: _Block, value: object) -> None:
        self._keep(block.signature, value)

    def _keep(self, pieces: list[str], value: object) -> bool:
        if not isinstance(value, str) or not value:
            return False
        pieces.append(value)
        self.content_bytes += _bytes(value)
        return True

    def _part(self, block: _Block) -> OutputPart | None:
        text = whole("".join(block.pieces))
        match block.kind:
            case "text":
                return TextPart(text=text) if text else None
            case "thinking":
                signature = "".join(block.signature)
                if len(signature) > limits.SIGNATURE_CHARS_MAX:
                    raise too_large(f"thinking has a signature of {len(signature)} characters")
                signed = whole(signature) or None
                return ThinkingPart(text=text, signature=signed) if text or signed else None
            case _:
                json_text = whole(_joined(block.begun, block.deltas))
                return NativePart(provider=self._provider, json_text=json_text)


def _input(begun: str) -> str:
    """The arguments of a call that came whole, else nothing."""
    return member_texts(begun).get("input", "")


def _joined(begun: str, deltas: list[str]) -> str:
    """The block with what came later in its place, else the list of all that came."""
    if not deltas:
        return begun
    members = member_texts(begun)
    arguments = ""
    for delta in deltas:
        pieces = {name: value for name, value in _object(delta).items() if name != "type"}
        if isinstance(piece := pieces.pop("partial_json", ""), str):
            arguments += piece
        for name, piece in pieces.items():
            before = loads(members.get(name, "null").encode())
            if not (isinstance(piece, str) and isinstance(before, str | None)):
                return f"[{','.join([begun, *deltas])}]"
            members[name] = json.dumps((before or "") + piece, ensure_ascii=False)
    if arguments:
        members["input"] = arguments
    pairs = (f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in members.items())
    return f"{{{','.join(pairs)}}}"


def _object(text: str) -> Json:
    value = loads(text.encode("utf-8", "surrogatepass"))
    return value if isinstance(value, dict) else {}


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
