"""Live frames as bytes on a channel, and back. What comes in is not trusted."""

from typing import Literal

import orjson
from pydantic import TypeAdapter, ValidationError

from threadlog.ids import TurnId
from threadlog.ports.notify import Advanced, Frame, LiveDelta, SoFar

_DELTA: TypeAdapter[LiveDelta] = TypeAdapter(LiveDelta)
_ADVANCED: TypeAdapter[Advanced] = TypeAdapter(Advanced)
_HEAD: TypeAdapter[tuple[TurnId, int, int]] = TypeAdapter(tuple[TurnId, int, int])
_PIECE: TypeAdapter[tuple[int, str, str]] = TypeAdapter(tuple[int, str, str])
_KINDS: dict[type[Frame], Literal[b"d", b"a"]] = {LiveDelta: b"d", Advanced: b"a"}


def encode_frame(frame: Frame) -> bytes:
    """One letter for the kind, then JSON."""
    return _KINDS[type(frame)] + orjson.dumps(frame)


def decode_frame(data: bytes) -> Frame | None:
    """The frame; None where it is none of ours, which is lost like any other."""
    try:
        if data[:1] == b"d":
            return _DELTA.validate_json(data[1:], strict=True)
        if data[:1] == b"a":
            return _ADVANCED.validate_json(data[1:], strict=True)
    except ValidationError:
        pass
    return None


def begun(delta: LiveDelta) -> bytes:
    """The head of a kept response, which its first piece makes."""
    return orjson.dumps([delta.turn_id, delta.step, delta.attempt]) + b"\n"


def piece(delta: LiveDelta) -> bytes:
    """One piece of a kept response."""
    return orjson.dumps([delta.n, delta.kind, delta.text]) + b"\n"


def so_far(data: bytes) -> SoFar | None:
    """The response that was kept; None where it is none. Inverse of `begun` and `piece`s."""
    head, *lines = data.split(b"\n")
    texts: dict[str, list[str]] = {"text": [], "thinking": []}
    n = 0
    try:
        turn, step, attempt = _HEAD.validate_json(head, strict=True)
        for line in lines[:-1]:
            at, kind, text = _PIECE.validate_json(line, strict=True)
            if at != n:
                break
            texts.setdefault(kind, []).append(text)
            n += 1
    except ValidationError:
        return None
    return SoFar(turn, step, attempt, n, "".join(texts["text"]), "".join(texts["thinking"]))
