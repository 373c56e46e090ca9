"""What our sides of the workload `turn` share: model, tools, and the turn itself."""

from collections.abc import Callable

from tests.bench.workload import TEXT, Turn
from threadlog.commands.requests import NewMessage, NewThread, ThreadSettings
from threadlog.commands.service import Commands
from threadlog.events.content import ModelRef, TextPart
from threadlog.ids import draw
from threadlog.ports.tools import Finding, ToolCall, ToolResult, WorkspaceRef
from threadlog.queries.reading import Reader

SCRIPT = [{"calls": ["read a.txt", "read b.txt"]}, {"text": TEXT}]
"""Two calls first, then the answer."""
SLOTS = 128
"""Two calls for each of the 64 threads in flight: no turn waits for another one's tools."""


class NoTools:
    """The tools port without any effect."""

    async def check(self) -> tuple[Finding, ...]:
        """Nothing to check."""
        return ()

    async def settle_orphans(self) -> None:
        """Nothing was started."""

    async def prepare(self, workspace: WorkspaceRef) -> None:
        """Nothing to prepare."""

    async def run(
        self, call: ToolCall, workspace: WorkspaceRef, *, may_start: Callable[[], bool]
    ) -> ToolResult:
        """The same text for every call."""
        assert may_start()
        return ToolResult("ok", TEXT.encode(), len(TEXT), exit_code=0)


def turn_of(
    commands: Commands, reader: Reader, at: Callable[[str, str], None] = lambda _, __: None
) -> Turn:
    """One turn on a fresh thread; `at` hears what was reached, and of which thread."""
    new = NewThread(
        ThreadSettings(model=ModelRef(provider="scripted", name="bench")),
        message=NewMessage((TextPart(text=TEXT),)),
    )

    async def turn() -> None:
        key = draw()
        at("began", key)
        accepted = await commands.create_thread(new, key=key)
        at("accepted", key)
        result = await reader.turn_result(accepted.thread_id, accepted.event_id, accepted.seq)
        at("finished", key)
        assert result.verdict == "completed"
        assert result.answer == TEXT

    return turn
