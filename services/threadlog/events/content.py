"""Content members of events: text, images, files, native blocks, and references to blobs.

A content member may be a blob reference; a structural member never is, so that the fold reads no
blob. Source: CONTRACT 1 (content and structure).
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from threadlog.limits import SIGNATURE_CHARS_MAX


class Frozen(BaseModel):
    """Base of every event type: immutable, strict, tolerant of unknown optional members."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


COUNT_MAX = 2**53 - 1
"""The largest integer that every reader of JSON keeps exactly."""
MICROS_MAX = 2**63 - 1
Number = Annotated[int, Field(ge=-COUNT_MAX, le=COUNT_MAX)]
Count = Annotated[int, Field(ge=0, le=COUNT_MAX)]
Ordinal = Annotated[int, Field(ge=1, le=COUNT_MAX)]
Head = Annotated[int, Field(ge=-1, le=COUNT_MAX)]
"""A seq, or -1 for a stream without an accepted event."""
Name = Annotated[str, Field(min_length=1, max_length=256)]
Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
"""A word of an open set: the fold does not branch on it, so that a later version may add words
without making the event invalid for readers of this one."""


class BlobRef(Frozen):
    """Content that lies in the blob store of the same tenant. A hash is no permission."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: Count
    media_type: str


Text = str | BlobRef
"""Text inline, or a reference to it when longer than `limits.INLINE_BYTES_MAX`."""


class TextPart(Frozen):
    """Plain text."""

    kind: Literal["text"] = "text"
    text: Text


class ImagePart(Frozen):
    """An image, by reference."""

    kind: Literal["image"] = "image"
    blob: BlobRef


class FilePart(Frozen):
    """A file that the sender attached, by reference."""

    kind: Literal["file"] = "file"
    name: str
    blob: BlobRef


class ThinkingPart(Frozen):
    """Reasoning text that a model showed, verbatim, with the provider's signature if it had one."""

    kind: Literal["thinking"] = "thinking"
    text: Text
    signature: str | None = Field(default=None, max_length=SIGNATURE_CHARS_MAX)


class NativePart(Frozen):
    """A provider's own block, its JSON kept verbatim; only that provider is shown it again."""

    kind: Literal["native"] = "native"
    provider: str
    json_text: Text


MessagePart = Annotated[TextPart | ImagePart | FilePart, Field(discriminator="kind")]
OutputPart = Annotated[TextPart | ThinkingPart | NativePart, Field(discriminator="kind")]


class Usage(Frozen):
    """What one attempt was billed: tokens by kind, cost in millionths of a US dollar.

    Units:   tokens; `input` excludes cache reads and writes, `output` includes `reasoning`;
             `cost_micros` None: the price is unknown.
    """

    input: Count = 0
    output: Count = 0
    cache_read: Count = 0
    cache_write: Count = 0
    reasoning: Count = 0
    cost_micros: int | None = Field(default=None, ge=0, le=MICROS_MAX)
    price_version: Name | None = None


class ModelRef(Frozen):
    """Which model is asked: the provider's adapter and the provider's own name for the model."""

    provider: Name
    name: Name
