"""Where output goes: data to stdout, everything else to stderr, and how each may look.

NO_COLOR, FORCE_COLOR, TERM=dumb and COLUMNS are honoured. A closed stderr never fails a command.
"""

import contextlib
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TextIO

import typer
from pydantic_settings import BaseSettings, SettingsConfigDict

from threadlog.cli.failures import exit_code
from threadlog.cli.plain import plain
from threadlog.errors import ThreadlogError
from threadlog.settings_parts import LoggingSettings
from threadlog.telemetry.failures import causes_of, name_of, places_of, said

NOTICES = "threadlog.notice"
"""The logger of what services tell on purpose, where lines are for machines."""
Style = Literal["dim", "bold", "red", "green", "yellow", "cyan"]
_CODES: dict[Style, str] = {
    "dim": "2",
    "bold": "1",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}


class TerminalSettings(BaseSettings):
    """What all terminal programs of a person agree on; nothing of these is a Threadlog setting."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", case_sensitive=True)

    NO_COLOR: str = ""
    FORCE_COLOR: str = ""
    TERM: str = ""
    COLUMNS: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """How lines are drawn. `columns` None: nobody looks through a window, lines are never cut."""

    has_colour: bool = False
    has_unicode: bool = True
    columns: int | None = None

    def paint(self, text: str, *styles: Style) -> str:
        """`text` in these styles, where there are colours."""
        if not (self.has_colour and styles and text):
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"


def look_of(stream: TextIO, settings: TerminalSettings) -> Look:
    """How lines on this stream may look."""
    is_terminal, is_dumb = stream.isatty(), settings.TERM == "dumb"
    has_colour = bool(settings.FORCE_COLOR) or (is_terminal and not is_dumb)
    encoding = (stream.encoding or "ascii").lower().replace("-", "")
    has_columns = is_terminal or settings.COLUMNS.isdecimal()
    return Look(
        has_colour=has_colour and not settings.NO_COLOR,
        has_unicode=encoding.startswith("utf") and not is_dumb,
        columns=shutil.get_terminal_size().columns if has_columns else None,
    )


class Screen:
    """The two streams of this process. `is_json`: what is told on stderr is a log line, too."""

    def __init__(self, *, is_json: bool = False) -> None:
        self.is_json = is_json
        settings = TerminalSettings()
        self.out = look_of(sys.stdout, settings)
        self.err = look_of(sys.stderr, settings)
        self.term = settings.TERM

    def data(self, line: str) -> None:
        """The line is part of the result. Raises BrokenPipeError when nobody reads any more."""
        sys.stdout.write(line + "\n")

    def flush(self) -> None:
        """What was given as data so far has left this process."""
        sys.stdout.flush()

    def note(self, line: str) -> None:
        """The line is for the person at the terminal; it is lost where nobody looks."""
        if self.is_json:
            logging.getLogger(NOTICES).info("%s", line.removeprefix("threadlog: "))
        else:
            self.piece(line + "\n")

    def piece(self, text: str) -> None:
        """Part of a line for the person at the terminal, shown at once."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()

    def is_same(self) -> bool:
        """Whether both streams are one and the same terminal."""
        if not (sys.stdout.isatty() and sys.stderr.isatty()):
            return False
        return os.fstat(sys.stdout.fileno()).st_rdev == os.fstat(sys.stderr.fileno()).st_rdev

    def follows(self) -> bool:
        """Whether a person watches stderr."""
        return sys.stderr.isatty()


class _PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))

    def formatException(self, ei: Any) -> str:  # the name of the library
        errors = causes_of(ei[1])
        return "\n".join([" <- ".join(map(name_of, errors)), *places_of(ei[1])])


def show_logs(settings: LoggingSettings | None = None) -> None:
    """What services say goes to stderr, as the settings want it; None: text, from warnings on.

    Effects: as text without terminal escapes. No line has the text of an error that is not ours.
    """
    settings = settings or LoggingSettings()
    handler = logging.StreamHandler()
    handler.addFilter(_without_values)
    if settings.format == "json":
        from threadlog.telemetry.logs import json_formatter

        handler.setFormatter(json_formatter())
        logging.getLogger(NOTICES).setLevel(logging.INFO)
    else:
        handler.setFormatter(_PlainFormatter("threadlog: %(message)s"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.level.upper())


@contextlib.contextmanager
def errors_told(screen: Screen) -> Iterator[None]:
    """What ends the block is a line like all others, where lines are for machines."""
    try:
        yield
    except ThreadlogError as error:
        if not screen.is_json:
            raise
        logging.getLogger(NOTICES).error("%s", error)
        raise typer.Exit(exit_code(error)) from error


def _without_values(record: logging.LogRecord) -> bool:
    """Errors among the arguments of the message are told as elsewhere."""
    if isinstance(record.args, tuple):
        record.args = tuple(said(a) if isinstance(a, BaseException) else a for a in record.args)
    return True


def silence(stream: TextIO) -> None:
    """What is still buffered for a reader that has gone is thrown away without a word."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
