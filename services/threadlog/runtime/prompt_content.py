"""What the planner keeps of a thread's content: transcript, system prompt, loaded blobs.

It follows the accepted events of a lane. A lane that was loaded from a snapshot has none of it
until it is needed; it is then read by range.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from threadlog.events.content import BlobRef, Text
from threadlog.events.envelope import Event
from threadlog.events.thread import ThreadConfigured
from threadlog.ports.blobs import Blobs
from threadlog.runtime.content import refs_of
from threadlog.thread.messages import Message, MessageCall
from threadlog.thread.transcript import Transcript

_UNAVAILABLE = "[unavailable]"


@dataclass(slots=True)
class Content:
    """The content of one thread, as far as it was read."""

    transcript: Transcript = field(default_factory=Transcript)
    system_prompt: Text | None = None
    blobs: dict[str, bytes | None] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """The next accepted event."""
        self.transcript.add(event)
        if isinstance(event.body, ThreadConfigured) and event.body.system_prompt is not None:
            self.system_prompt = event.body.system_prompt

    def missing(self, messages: Iterable[Message]) -> set[str]:
        """Blobs that a request with these messages needs and that were not looked up yet."""
        needed = refs_of(messages)
        if isinstance(self.system_prompt, BlobRef):
            needed.add(self.system_prompt.sha256)
        return needed - self.blobs.keys()

    async def load(self, blobs: Blobs, tenant: str, wanted: Iterable[str]) -> None:
        """The wanted blobs were looked up; one that is gone or altered is kept as None."""
        from_store = blobs.get
        for sha256 in wanted:
            self.blobs[sha256] = await from_store(tenant, sha256)  # type: ignore[arg-type]  # NewType

    def text(self, text: Text) -> str:
        """The text itself; a blob that is gone reads as unavailable."""
        if isinstance(text, str):
            return text
        content = self.blobs.get(text.sha256)
        return _UNAVAILABLE if content is None else content.decode("utf-8", "replace")

    def arguments(self, call: MessageCall) -> str | None:
        """The call's arguments, or None when they cannot be loaded any more."""
        if isinstance(call.arguments, str):
            return call.arguments
        content = self.blobs.get(call.arguments.sha256)
        return None if content is None else content.decode("utf-8", "replace")

    def found_blobs(self) -> dict[str, bytes]:
        """The blobs that are there."""
        return {sha256: content for sha256, content in self.blobs.items() if content is not None}
