"""The metrics of tool calls."""

from typing import get_args

from threadlog.telemetry.labels import Command, ToolOutcome
from threadlog.telemetry.registry import Children, Registry, known

_COMMANDS = frozenset(get_args(Command))
_OUTCOMES = frozenset(get_args(ToolOutcome))
_RUN: tuple[Command, ...] = ("read", "write", "edit", "shell")


class ToolMetrics:
    """Calls, by what they ran and what came of them."""

    def __init__(self, registry: Registry) -> None:
        self._calls = Children(registry.counter("threadlog_tool_calls_total"))
        self._seconds = Children(registry.histogram("threadlog_tool_call_duration_seconds"))
        self._orphaned = registry.gauge("threadlog_tool_calls_orphaned")

    def expect(self, *, runs: bool) -> None:
        """An alert needs the zero before the one. `runs`: here commands are run, not refused."""
        if not runs:
            self._calls["none", "not_started"].inc(0)
            return
        for command in _RUN:
            for outcome in ("ok", "unknown"):
                self._calls[command, outcome].inc(0)

    def call(self, command: str, outcome: str, seconds: float | None) -> None:
        """A call came to its outcome; `seconds` None: it ran nothing, or nobody knows how long."""
        command = known(command, _COMMANDS)
        self._calls[command, known(outcome, _OUTCOMES)].inc()
        if seconds is not None:
            self._seconds[(command,)].observe(seconds)

    def orphaned(self, calls: int) -> None:
        """So many started calls are past their deadline and have no outcome."""
        self._orphaned.set(calls)
