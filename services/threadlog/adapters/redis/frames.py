"""Live frames as bytes on a channel, and back. What comes in is not trusted."""

from typing import Literal

import orjson
from pydantic import TypeAdapter, ValidationError

from threadlog.ports.notify import Advanced, Frame, LiveDelta

_DELTA: TypeAdapter[LiveDelta] = TypeAdapter(LiveDelta)
_ADVANCED: TypeAdapter[Advanced] = TypeAdapter(Advanced)
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
