"""Screening: what a model's call asks for, and whether it may start at all. Pure.

A call that may not start is refused with a word for the log and a sentence for the model; it never
breaks the thread.
"""

from dataclasses import dataclass

import orjson

from threadlog.events.tool import Effect, Gate
from threadlog.limits import COMMAND_BYTES_MAX
from threadlog.thread.command_line import UsageProblem, effect, parse

TOOL_NAME = "cli"


@dataclass(frozen=True, slots=True)
class Screened:
    """The policy's word on one call. `reason` and `message` are empty where the gate is `free`."""

    gate: Gate
    effect: Effect
    command: str | None
    reason: str = ""
    message: str = ""


def screen(name: str, arguments: str | None, tools: tuple[str, ...], truncated: bool) -> Screened:
    """Whether the call may start. `arguments` None: they could not be loaded."""
    if truncated:
        return _refused("truncated", "the response was cut by the token limit before this call")
    if name != TOOL_NAME or name not in tools:
        known = ", ".join(tools) or "none"
        return _refused("unknown_tool", f"there is no tool of that name; the tools are: {known}")
    if arguments is None:
        return _refused("unavailable", "the arguments of this call are no longer available")
    command = _command_of(arguments)
    if command is None:
        return _refused(
            "invalid_arguments", 'the arguments must be a JSON object {"command": "one line"}'
        )
    if len(command.encode("utf-8", "surrogatepass")) > COMMAND_BYTES_MAX:
        return _refused(
            "too_long", f"the command is longer than {COMMAND_BYTES_MAX} bytes; split it"
        )
    parsed = parse(command)
    if isinstance(parsed, UsageProblem):
        return _refused("usage", parsed.message)
    return Screened("free", effect(parsed), command)


def _command_of(arguments: str) -> str | None:
    """The command of a JSON object with exactly that member; None for anything else."""
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict) or set(value) != {"command"}:
        return None
    command = value["command"]
    return command if isinstance(command, str) else None


def _refused(reason: str, message: str) -> Screened:
    return Screened("refused", "unsafe", None, reason, message)
