"""Inputs: what a person or program gives a thread.

Each carries `base_seq`: the head of the view in which its id was looked up and not found. An input
older than the window of remembered ids is void (`stale`), never delivered twice.
"""

from typing import ClassVar, Literal

from pydantic import Field

from threadlog.events.content import Head, MessagePart, Word
from threadlog.events.envelope import Body
from threadlog.ids import UUID_PATTERN, CallId, TurnId

Delivery = Literal["reject", "next_turn", "next_step", "interrupt"]


class MessageReceived(Body):
    """A message entered the inbox; `delivery` says when it is taken."""

    TYPE: ClassVar[str] = "message.received"

    base_seq: Head
    delivery: Delivery
    content: tuple[MessagePart, ...] = Field(min_length=1)


class CancelRequested(Body):
    """Somebody asked to stop the open turn `turn_id` (`call_id` None), or one call of it.

    It marks; it settles nothing: the outcome of a claimed call comes from its writer.
    """

    TYPE: ClassVar[str] = "cancel.requested"

    base_seq: Head
    turn_id: TurnId = Field(pattern=f"^{UUID_PATTERN}$")
    cause: Word
    call_id: CallId | None = None
