"""What is asked for, as bodies of requests."""

from pydantic import ValidationError

from threadlog.api.parts import (
    BlobRefBody,
    FilePartBody,
    ImagePartBody,
    PartBody,
    TextPartBody,
)
from threadlog.api.threads import (
    LimitsBody,
    MessageBody,
    ModelBody,
    SettingsBody,
    ThreadBody,
    WorkspaceBody,
)
from threadlog.commands.requests import NewMessage, NewThread, ThreadSettings
from threadlog.errors import RejectedError
from threadlog.events.content import BlobRef, FilePart, ImagePart, MessagePart, TextPart


def thread_body(new: NewThread) -> ThreadBody:
    """A thread to be made.

    Raises:  RejectedError: it cannot be written in a request.
    """
    message = None if new.message is None else message_body(new.message)
    settings = settings_body(new.settings)
    try:
        return ThreadBody(settings=settings, title=new.title, message=message)
    except ValidationError as error:
        raise _unfit(error) from None


def settings_body(settings: ThreadSettings) -> SettingsBody:
    """Settings; what is None is left out.

    Raises:  RejectedError: as `thread_body`.
    """
    model, limits, workspace = settings.model, settings.limits, settings.workspace
    try:
        return SettingsBody(
            model=None if model is None else ModelBody(**dict(model)),
            thinking=settings.thinking,
            system_prompt=settings.system_prompt,
            tools=settings.tools,
            limits=None if limits is None else LimitsBody(**dict(limits)),
            workspace=None if workspace is None else WorkspaceBody(**dict(workspace)),
        )
    except ValidationError as error:
        raise _unfit(error) from None


def message_body(message: NewMessage) -> MessageBody:
    """A message, its content as parts.

    Raises:  RejectedError: as `thread_body`.
    """
    try:
        parts = tuple(map(_part, message.content))
        return MessageBody(content=parts, delivery=message.delivery)
    except ValidationError as error:
        raise _unfit(error) from None


def _part(part: MessagePart) -> PartBody:
    match part:
        case TextPart(text=str(text)):
            return TextPartBody(kind="text", text=text)
        case ImagePart(blob=blob):
            return ImagePartBody(kind="image", blob=_blob(blob))
        case FilePart(name=name, blob=blob):
            return FilePartBody(kind="file", name=name, blob=_blob(blob))
        case _:
            raise RejectedError("a text is sent as text, not as a reference to one")


def _blob(blob: BlobRef) -> BlobRefBody:
    return BlobRefBody(**dict(blob))


def _unfit(error: ValidationError) -> RejectedError:
    """The member is named; what it holds is not repeated."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    path = ".".join(str(step) for step in first["loc"])
    return RejectedError(f"{path or 'request'}: {first['msg']}")
