"""Log lines: what they are marked with, and that no value of an error gets into one."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from threadlog.cli.terminal import show_logs
from threadlog.errors import ModelError, RefusedError
from threadlog.events.trace import span_of, turn_root
from threadlog.ids import LOCAL_TENANT, Seq, ThreadId, TurnId
from threadlog.settings_parts import LoggingSettings
from threadlog.telemetry import scope

CANARY = "canary-51c2"
_log = logging.getLogger("threadlog.test")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., io.StringIO]]:
    """Shows logs in this format; what was said."""
    root = logging.getLogger()
    before = root.handlers, root.level

    def shown(**settings: Any) -> io.StringIO:
        stream = io.StringIO()
        monkeypatch.setattr("sys.stderr", stream)
        show_logs(LoggingSettings(**settings))
        return stream

    yield shown
    root.handlers, level = before
    root.setLevel(level)


def fail(value: str) -> None:
    """An error whose text, and whose cause's, holds the value."""
    try:
        raise KeyError(f"{value} was not there")
    except KeyError as error:
        raise ValueError(f"cannot use {value}") from error


def failing(log: Callable[..., None], *arguments: object) -> None:
    try:
        fail(CANARY)
    except ValueError as error:
        log(*arguments, error, exc_info=error)


@pytest.mark.parametrize("format_", ["text", "json"])
def test_F98_no_line_has_the_text_of_a_foreign_error(
    said: Callable[..., io.StringIO], format_: str
) -> None:
    stream = said(format=format_)
    failing(_log.error, "it broke: %s")
    text = stream.getvalue()
    assert CANARY not in text
    assert "it broke: ValueError" in text
    assert "KeyError" in text
    assert "test_logs.py" in text
    assert " fail" in text


def test_F98_what_a_provider_says_of_a_model_is_in_no_line(
    said: Callable[..., io.StringIO],
) -> None:
    stream = said(format="json")
    error = ModelError(CANARY, error_class="bad_request", retryable=False)
    _log.error("%s", error, exc_info=error)
    assert CANARY not in stream.getvalue()
    assert stream.getvalue().count("ModelError bad_request") == 2


@pytest.mark.parametrize("format_", ["text", "json"])
def test_F103_our_own_errors_say_what_is_wrong(
    said: Callable[..., io.StringIO], format_: str
) -> None:
    stream = said(format=format_)
    error = RefusedError("the folder is not there")
    _log.error("%s", error, exc_info=error)
    assert stream.getvalue().count("the folder is not there") == 2


def test_F103_a_line_is_one_object_whatever_is_in_it(said: Callable[..., io.StringIO]) -> None:
    stream = said(format="json")
    _log.warning("two\nlines \x1b[31m %s", "\u2028 and \N{SNOWMAN}")
    [line] = stream.getvalue().splitlines()[:1]
    assert stream.getvalue().count("\n") == 1
    assert json.loads(stream.getvalue())["message"].startswith("two\nlines")
    assert "\x1b" not in line


def test_F103_a_line_is_marked_with_what_it_is_about(said: Callable[..., io.StringIO]) -> None:
    stream = said(format="json", level="info")
    turn = TurnId("a turn")
    token = scope.bind(scope.Scope(LOCAL_TENANT, ThreadId("a thread"), Seq(7), turn))
    scope.begin_span(span_of("a claim"))
    _log.info("inside")
    scope.unbind(token)
    _log.info("outside")
    _log.debug("not said")
    inside, outside = map(json.loads, stream.getvalue().split("\n")[:-1])
    root = turn_root(turn, is_sampled=True)
    assert (inside["tenant"], inside["thread"], inside["seq"]) == (LOCAL_TENANT, "a thread", 7)
    assert (inside["trace_id"], inside["span_id"]) == (root.trace_id, span_of("a claim"))
    assert (inside["logger"], inside["level"]) == ("threadlog.test", "info")
    assert inside["time"].endswith("Z")
    assert not {"tenant", "thread", "seq", "trace_id", "span_id"} & outside.keys()
