"""Named crash points: places where a test may end the process at once.

`reach` does nothing unless a test armed the point; then the process is killed as by `kill -9`, so
that no cleanup runs. The names are listed here, and a test walks all of them.
"""

import os
import signal
from typing import Final

POINTS: Final = (
    "planner.claim.before_append",
    "planner.claim.after_append",
    "planner.effect.before",
    "planner.effect.after",
    "planner.outcome.before_append",
    "planner.outcome.after_append",
    "tool_runner.claim.before_append",
    "tool_runner.claim.after_append",
    "tool_runner.effect.before",
    "tool_runner.effect.after",
    "tool_runner.outcome.before_append",
    "tool_runner.outcome.after_append",
    "projection.apply.before",
    "projection.apply.after",
)
_armed: dict[str, int] = {}


def arm(name: str, visit: int = 1) -> None:
    """The process dies at the `visit`-th time that it reaches `name`, counted from 1."""
    assert name in POINTS, name
    _armed[name] = visit


def reach(name: str) -> None:
    """The process goes on, or dies here when a test wants it to."""
    if not _armed:
        return
    if name in _armed:
        _armed[name] -= 1
        if _armed[name] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
