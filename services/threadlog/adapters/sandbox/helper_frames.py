"""Request and reply of the helper: keys and values, each behind its length.

Not JSON, because importing it costs more than all the rest of a call, and file content is bytes.
Runs under any Python >= 3.8.
"""

from __future__ import annotations


def pack(fields: dict[str, bytes]) -> bytes:
    """Keys and values, each behind its length; the last frame says that nothing is missing."""
    parts = [part for key, value in fields.items() for part in (key.encode(), value)]
    return b"".join(b"%d:%s" % (len(part), part) for part in [*parts, b"end"])


def unpack(data: bytes) -> dict[str, bytes]:
    """What `pack` was given. Raises ValueError when the frames are cut short or damaged."""
    parts, at = [b""], 0
    while at < len(data):
        colon = data.index(b":", at)
        if not data[at:colon].isdigit():
            raise ValueError("a frame has no length")
        end = colon + 1 + int(data[at:colon])
        parts.append(data[colon + 1 : end])
        at = end
    if at != len(data) or len(parts) % 2 != 0 or parts[-1] != b"end":
        raise ValueError("frames are cut short")
    return {parts[i].decode(): parts[i + 1] for i in range(1, len(parts) - 1, 2)}
