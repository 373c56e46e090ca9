"""Events of a thread as a whole: its creation and its settings."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from threadlog.events.content import Frozen, Head, ModelRef, Name, Ordinal, Text, Word
from threadlog.events.envelope import Body

ThinkingLevel = Literal["none", "low", "medium", "high"]


class Workspace(Frozen):
    """Where the thread's tools work: a folder the runner manages, or one attached by its path.

    Shapes:  `path` is absolute, and there exactly when the folder is attached.
    """

    kind: Literal["managed", "attached"]
    path: str | None = Field(default=None, max_length=4_096, pattern="^/[^\\x00]*$")

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if (self.kind == "attached") != (self.path is not None):
            raise ValueError("an attached workspace has a path, a managed one has none")
        return self


class Limits(Frozen):
    """Bounds of one thread; None leaves a bound as it is.

    Units:   `output_tokens_max` tokens per model response, `call_timeout_ms` milliseconds per
             tool call, `steps_max` steps per turn.
    """

    output_tokens_max: Ordinal | None = None
    call_timeout_ms: Ordinal | None = None
    steps_max: Ordinal | None = None


class ThreadCreated(Body):
    """A stream begins."""

    TYPE: ClassVar[str] = "thread.created"

    title: str | None = Field(default=None, max_length=200)


class ThreadConfigured(Body):
    """Settings changed, from the next step on. A member that is None stays as it was."""

    TYPE: ClassVar[str] = "thread.configured"

    base_seq: Head
    model: ModelRef | None = None
    thinking: Word | None = None
    system_prompt: Text | None = None
    tools: Annotated[tuple[Name, ...], Field(max_length=64)] | None = None
    limits: Limits | None = None
    workspace: Workspace | None = None
