"""The base of every body that a client sends, and the parts of a message. Closed. Pure."""

from typing import Annotated, Literal

import pydantic_core
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from threadlog.events.content import BlobRef, FilePart, ImagePart, MessagePart, Name, TextPart

_PARTS_MAX = 256


class Wire(BaseModel):
    """Base of every body: immutable, strict, closed."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, value: object) -> object:
        """Half a surrogate pair is no text: what holds one could not be written to the log."""
        try:
            pydantic_core.to_json(value)
        except (ValueError, RecursionError) as error:
            raise ValueError("not UTF-8 text") from error
        return value


class BlobRefBody(BlobRef, Wire):
    """Content that lies in the blob store of the tenant."""

    media_type: str = Field(max_length=255, pattern=r"^[\w.+-]+/[\w.+-]+(; ?[\w.+-]+=[\w.+-]+)*$")


class TextPartBody(Wire):
    """Plain text."""

    kind: Literal["text"]
    text: str

    def part(self) -> MessagePart:
        """The same as it is in an event."""
        return TextPart(text=self.text)


class ImagePartBody(Wire):
    """An image, by reference."""

    kind: Literal["image"]
    blob: BlobRefBody

    def part(self) -> MessagePart:
        """The same as it is in an event."""
        return ImagePart(blob=_plain(self.blob))


class FilePartBody(Wire):
    """A file that the sender attached, by reference."""

    kind: Literal["file"]
    name: Annotated[Name, Field(pattern=r"^[^\x00-\x1f\x7f]+$")]
    blob: BlobRefBody

    def part(self) -> MessagePart:
        """The same as it is in an event."""
        return FilePart(name=self.name, blob=_plain(self.blob))


PartBody = Annotated[TextPartBody | ImagePartBody | FilePartBody, Field(discriminator="kind")]
Parts = Annotated[tuple[PartBody, ...], Field(min_length=1, max_length=_PARTS_MAX, strict=False)]


def _form_of(content: object) -> str:
    return "<text>" if isinstance(content, str) else "<parts>"


Content = Annotated[
    Annotated[str, Field(min_length=1), Tag("<text>")] | Annotated[Parts, Tag("<parts>")],
    Discriminator(_form_of),
]
"""A text alone stands for one part that holds it."""


def _plain(blob: BlobRef) -> BlobRef:
    return BlobRef(sha256=blob.sha256, bytes=blob.bytes, media_type=blob.media_type)
