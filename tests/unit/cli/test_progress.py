"""What the person who waits is told."""

import io

import pytest

from tests.helpers.events import event_id
from tests.helpers.turns import TURN, call, finished, happened, responded, started, whole_turn
from threadlog.cli.progress import Progress
from threadlog.cli.terminal import Screen
from threadlog.events.step import ModelAttemptFailed
from threadlog.ports.notify import LiveDelta


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def delta(n: int, text: str, kind: str = "text") -> LiveDelta:
    return LiveDelta(TURN, step=1, attempt=1, n=n, kind=kind, text=text)


def watched(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error from now on: a terminal without colours."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    return stream


def test_a_turn_is_told_in_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(Screen())
    for stored in whole_turn():
        progress.event(stored.event)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "I look.",
        "  made a.py, 1,723 bytes",
        "$ make  error, exit code 2, 1,234 ms",
        "$ ls  ok, 1,234 ms",
    ]


def test_nothing_streams_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(Screen())
    progress.delta(delta(0, "hello"))
    assert (progress.streamed(), capsys.readouterr().err) == ("", "")


def test_text_streams_to_a_terminal_and_is_not_told_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    err = watched(monkeypatch)
    progress = Progress(Screen())
    progress.event(happened("s", started(1)))
    progress.delta(delta(0, "thinking", kind="thinking"))
    progress.delta(delta(0, "I lo\x1b[31m"))
    progress.delta(delta(1, "ok."))
    assert progress.streamed() == "I lo\x1b[31mok."
    progress.event(happened("r", responded("s", "I lo\x1b[31mok.", "ls")))
    progress.event(happened("f", finished("c")))
    assert err.getvalue().splitlines() == [
        "I lo\\x1b[31mok.",
        f"$ (call {call('c')[:8]})  ok, 1,234 ms",
    ]


def test_another_attempt_begins_its_text_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    err = watched(monkeypatch)
    progress = Progress(Screen())
    progress.delta(delta(0, "first tr"))
    failed = ModelAttemptFailed(
        claim=event_id("s"), attempt=1, error_class="cut_stream", message="cut", retryable=True
    )
    progress.event(happened("failed", failed))
    assert progress.doing == "waiting for the next attempt"
    progress.delta(delta(0, "second"))
    assert progress.streamed() == "second"
    progress.end_line()
    assert err.getvalue().splitlines()[1].startswith("  model request: cut stream")


def test_what_goes_on_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(Screen())
    for stored in whole_turn()[:10]:
        progress.event(stored.event)
    assert progress.doing == "running make"
    progress.event(happened("s", started(2)))
    assert progress.doing == "step 2, scripted/demo: waiting for the model"
    capsys.readouterr()


def test_lines_keep_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    err = watched(monkeypatch)
    progress = Progress(Screen())
    progress.line("x" * 200)
    assert len(err.getvalue().rstrip("\n")) == 80
