"""Tool calls: requested, claimed, run, settled.

A call is opened by `model.responded`; `tool.requested` marks it ready (or refused), and its id is
the call's id. `tool.started` is a claim. Every call ends in exactly one accepted `tool.finished`.
"""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from threadlog.events.content import BlobRef, Count, Number, Ordinal, Text, Word
from threadlog.events.envelope import Body
from threadlog.ids import CallId, EventId
from threadlog.limits import COMMAND_BYTES_MAX

Effect = Literal["pure", "idempotent", "unsafe"]
Gate = Literal["free", "refused"]
Outcome = Literal["ok", "error", "timeout", "cancelled", "denied", "not_started", "unknown"]


class ToolRequested(Body):
    """Call `ordinal` of the response is ready to be claimed, or refused before it could start.

    `command`: the command line, always there when the gate is `free`, None when the arguments held
    none. `reason`: why it is refused. `effect` decides recovery: pure and idempotent calls may
    become the next attempt.
    """

    TYPE: ClassVar[str] = "tool.requested"

    ordinal: Count
    gate: Gate
    effect: Effect
    command: str | None = Field(default=None, max_length=COMMAND_BYTES_MAX)
    reason: str | None = Field(default=None, max_length=200)

    @model_validator(mode="after")
    def _can_run(self) -> Self:
        if self.gate == "free" and self.command is None:
            raise ValueError("a free call has a command")
        return self


class ToolStarted(Body):
    """The claim of one attempt of a call.

    `decided_at`: the seq it was decided at; another worker's tool event since voids it.
    """

    TYPE: ClassVar[str] = "tool.started"

    call_id: CallId
    attempt: Ordinal
    decided_at: Count


class ToolReleased(Body):
    """A claim that will not be used, or whose writer is gone, was given up.

    The next attempt opens.
    """

    TYPE: ClassVar[str] = "tool.released"

    call_id: CallId
    attempt: Ordinal
    claim: EventId
    by: Literal["writer", "settlement"]
    reason: Word


class FileChanged(Body):
    """The call changed one file of the workspace.

    Shapes:  `ordinal` counts the changes of one attempt from 1; `before` None: the file was new;
             `after` None: it was deleted. A side whose content was too large to keep has its hash
             and size in the reference all the same.
    """

    TYPE: ClassVar[str] = "file.changed"

    call_id: CallId
    attempt: Ordinal
    claim: EventId
    ordinal: Ordinal
    path: str = Field(min_length=1, max_length=4_096)
    before: BlobRef | None = None
    after: BlobRef | None = None


class ToolFinished(Body):
    """The outcome of a call. `claim` None: it never started.

    Shapes:  `output` is what the model sees; `output_blob` is the whole output when that is longer;
             `exit_code` None: no process ended by itself; `files` counts its `file.changed`.
    Units:   `duration_ms` milliseconds, `output_bytes` bytes that the call produced in all.
    """

    TYPE: ClassVar[str] = "tool.finished"

    call_id: CallId
    attempt: Ordinal
    claim: EventId | None = None
    by: Literal["writer", "planner", "settlement"]
    outcome: Outcome
    reason: str | None = Field(default=None, max_length=200)
    output: Text = ""
    output_blob: BlobRef | None = None
    output_bytes: Count = 0
    exit_code: Number | None = None
    signal: Number | None = None
    duration_ms: Count | None = None
    files: Count = 0
