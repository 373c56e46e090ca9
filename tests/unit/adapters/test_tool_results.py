"""How an ending is judged: the command's own end, a bound, or a failure of the sandbox."""

from dataclasses import replace

import pytest

from threadlog.adapters.sandbox import results
from threadlog.adapters.sandbox.helper_frames import pack
from threadlog.adapters.sandbox.supervise import Ending

ENDED = Ending(
    is_started=True, is_gone=True, why="exit", code=0, signal=None, output=b"x", output_bytes=1
)
REPLY = pack({"reason": b"", "text": b"done"})


@pytest.mark.parametrize(
    ("ending", "outcome", "reason"),
    [
        (ENDED, "ok", None),
        (replace(ENDED, code=1), "error", "exit"),
        (replace(ENDED, code=None, signal=9), "error", "signal"),
        (replace(ENDED, code=None), "error", "sandbox"),
        (replace(ENDED, why="timeout", code=None, signal=9), "timeout", "deadline"),
        (replace(ENDED, why="memory", code=None, signal=9), "error", "memory"),
        (replace(ENDED, why="timeout", is_gone=False), "unknown", "unkillable"),
    ],
)
def test_a_command(ending: Ending, outcome: str, reason: str | None) -> None:
    result = results.of_shell(ending)
    assert (result.outcome, result.reason) == (outcome, reason)


@pytest.mark.parametrize(
    ("ending", "outcome", "reason"),
    [
        (replace(ENDED, output=REPLY), "ok", None),
        (replace(ENDED, output=REPLY[:-1]), "error", "sandbox"),
        (replace(ENDED, output=b"Traceback", code=1), "error", "sandbox"),
        (replace(ENDED, output=b"", code=None, signal=9), "error", "sandbox"),
        (replace(ENDED, output=b"", why="timeout", code=None, signal=9), "timeout", "deadline"),
        (replace(ENDED, output=b"", why="memory", code=None, signal=9), "error", "memory"),
    ],
)
def test_a_built_in(ending: Ending, outcome: str, reason: str | None) -> None:
    result = results.of_built_in(ending)
    assert (result.outcome, result.reason) == (outcome, reason)
