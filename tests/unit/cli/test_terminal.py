"""Where output goes, and how it may look."""

import io
import logging
from typing import TextIO

import pytest

from threadlog.cli.tables import aligned
from threadlog.cli.terminal import Look, Screen, TerminalSettings, look_of, show_logs


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)

    def isatty(self) -> bool:
        return True


def look(stream: TextIO, **environment: str) -> Look:
    return look_of(stream, TerminalSettings.model_validate({"TERM": "xterm"} | environment))


def test_a_terminal_has_colours_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    assert look(Terminal(), COLUMNS="72") == Look(has_colour=True, has_unicode=True, columns=72)


@pytest.mark.parametrize(
    ("environment", "has_colour"),
    [
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_follow_the_environment(environment: dict[str, str], has_colour: bool) -> None:
    assert look(Terminal(), **environment).has_colour is has_colour


def test_a_pipe_has_neither_unless_asked() -> None:
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    assert look(pipe) == Look(has_colour=False, has_unicode=True, columns=None)
    assert look(pipe, FORCE_COLOR="1").has_colour
    assert look(pipe, COLUMNS="60").columns is not None
    assert look(pipe, COLUMNS="wide").columns is None


def test_dumb_and_foreign_terminals_get_ascii() -> None:
    assert not look(Terminal("latin-1")).has_unicode
    assert not look(Terminal(), TERM="dumb").has_unicode


def test_a_closed_stderr_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stderr", gone)
    screen = Screen()
    gone.close()
    screen.note("nobody hears this")


def test_logs_are_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogger().handlers
    try:
        show_logs()
        logging.getLogger("threadlog.test").warning("worker \x1b[31mgone")
        logging.getLogger("threadlog.test").info("not shown")
    finally:
        logging.getLogger().handlers = before
    assert capsys.readouterr().err == "threadlog: worker gone\n"


def test_tables_align_texts_left_and_numbers_right() -> None:
    lines = [("NAME", "N"), ("世界", "10"), ("a", "9")]
    assert aligned(lines, 1) == ["NAME   N", "世界  10", "a      9"]
    assert aligned(lines) == ["NAME  N", "世界  10", "a     9"]
