"""The model port: render a request to exact bytes, then send exactly those bytes.

Rendering is pure and apart from sending, so that the hash of the request can be in the claim
before the request is sent, and so that any past request can be rendered again and compared.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from threadlog.events.content import ModelRef, OutputPart, Usage
from threadlog.events.step import ModelCall, StopReason
from threadlog.events.thread import ThinkingLevel
from threadlog.thread.messages import Message


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is told of it; `parameters` is its JSON Schema as canonical JSON text."""

    name: str
    description: str
    parameters: str


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Everything a request is rendered from.

    Shapes:  `blobs` maps sha256 to content for every blob reference in `messages` and
             `system_prompt` that could be loaded; a reference without an entry renders as
             `unavailable`. `thinking` and `output_tokens_max` None: the provider's default.
    """

    model: ModelRef
    system_prompt: str | None
    tools: tuple[ToolSpec, ...]
    messages: tuple[Message, ...]
    thinking: ThinkingLevel | None = None
    output_tokens_max: int | None = None
    blobs: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A complete response. `usage` None: the provider sent none."""

    content: tuple[OutputPart, ...]
    calls: tuple[ModelCall, ...]
    stop: StopReason
    usage: Usage | None
    model: ModelRef


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of text as it streams: live only, never in the log. `kind`: `text` or `thinking`."""

    kind: str
    text: str


def always() -> bool:
    """Nothing can come too late."""
    return True


class Renderer(Protocol):
    """How one provider is asked, without asking it."""

    @property
    def renderer(self) -> str:
        """Name and version of the rendering code, `openai-chat/1`; recorded in each manifest."""
        ...

    def render(self, request: ModelRequest) -> bytes:
        """The exact body that is sent for `request`; equal requests, equal bytes."""
        ...


class Model(Renderer, Protocol):
    """One provider."""

    async def send(
        self,
        body: bytes,
        on_delta: Callable[[Delta], None],
        *,
        may_start: Callable[[], bool] = always,
    ) -> ModelReply:
        """The model's complete response to `body`.

        Effects: one request to the provider, never repeated inside; `on_delta` is called on the
                 event loop for each piece. Cancelling the call closes the connection at once.
                 `may_start` is asked last thing before the body leaves, on an open connection.
        Raises:  ModelError: the attempt failed; its `error_class` and `retryable` say how.
                 LateError: `may_start` said no; no part of the body has left.
        """
        ...
