"""A command line is a built-in (`read`, `write`, `edit`), a shell line, or a usage problem.

A line is a built-in only when all of it lexes to one simple command in which a shell would expand
nothing (`shell_words`). A line that begins with one of the three words and is anything more is a
usage problem that says the right form; it never falls through to the shell, where the same word
would mean something else. Whoever wants the shell's own `read` quotes it: `'read' line`.
Source: DESIGN 8, CONTRACT 4, FEATURES F50.
"""

import re
from dataclasses import dataclass
from typing import Literal

from threadlog import limits
from threadlog.thread import shell_words
from threadlog.thread.shell_words import NotSimpleError, SimpleCommand

USAGES = {
    "read": "read PATH [FROM[:TO]], or read @CALL_ID FROM:TO",
    "write": "write PATH CONTENT, or write PATH <<'EOF' and the content in the lines below",
    "edit": "edit PATH --base HASH OLD NEW, or edit PATH --base HASH FROM:TO <<'EOF' and new lines",
}
_BUILT_IN = re.compile(r"(read|write|edit)(?=[ \t\n|&;()<>]|\Z)")
_WINDOW = re.compile(r"([0-9]{1,9})(?::([0-9]{1,9}))?")
_RANGE = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")
_HASH = re.compile(r"[0-9a-f]{12,64}")


@dataclass(frozen=True, slots=True)
class Read:
    """Print a file. Units: lines count from 1; `last` None: as many as fit the window."""

    path: str
    first: int
    last: int | None


@dataclass(frozen=True, slots=True)
class ReadOutput:
    """Read on in the stored output of an earlier call; the lines count as in `Read`."""

    call_id: str
    first: int
    last: int | None


@dataclass(frozen=True, slots=True)
class Write:
    """Make a file, or replace all of it."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class ReplaceText:
    """The one place where `old` occurs becomes `new`."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class ReplaceLines:
    """Lines `first`..`last` become `text`. `last` = `first` - 1: inserted before line `first`."""

    first: int
    last: int
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Change a file whose hash still begins with `base`."""

    path: str
    base: str
    change: ReplaceText | ReplaceLines


@dataclass(frozen=True, slots=True)
class ShellLine:
    """Everything that is no built-in."""

    line: str


@dataclass(frozen=True, slots=True)
class UsageProblem:
    """A line that is not run; the message is written for the model."""

    message: str


Command = Read | ReadOutput | Write | Edit | ShellLine | UsageProblem


def parse(line: str) -> Command:
    """What the line asks for; total: every text gives an answer."""
    problem = _unusable(line)
    if problem is not None:
        return UsageProblem(problem)
    word = _BUILT_IN.match(line, shell_words.start(line))
    if word is None:
        return ShellLine(line)
    try:
        return _built_in(word[1], shell_words.lex(line))
    except NotSimpleError as error:
        return _wrong(word[1], str(error))


def effect(command: Command) -> Literal["pure", "unsafe"]:
    """Whether the call may be repeated after its worker's death. Only reading is pure."""
    return "pure" if isinstance(command, Read | ReadOutput) else "unsafe"


def _unusable(line: str) -> str | None:
    if not line.strip():
        return "the command line is empty"
    if "\0" in line:
        return "the command line holds a NUL character"
    try:
        size = len(line.encode())
    except UnicodeEncodeError:
        return "the command line holds half of a surrogate pair, which is no text"
    if size > limits.COMMAND_BYTES_MAX:
        return f"the command line has {size} bytes, more than {limits.COMMAND_BYTES_MAX}"
    return None


def _wrong(word: str, why: str) -> UsageProblem:
    return UsageProblem(f"{word}: {why}. Right form: {USAGES[word]}")


def _built_in(word: str, command: SimpleCommand) -> Command:
    args = command.words[1:]
    match word:
        case "read":
            return _read(args, command.heredoc)
        case "write":
            return _write(args, command.heredoc)
        case _:
            return _edit(args, command.heredoc)


def _operands(args: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments behind options; `--` lets a path begin with a hyphen."""
    if args[:1] == ("--",):
        return args[1:]
    if args and args[0].startswith("-"):
        raise NotSimpleError(f"unknown option {args[0]}; a path that begins with - goes after --")
    return args


def _read(args: tuple[str, ...], heredoc: str | None) -> Command:
    is_file = args[:1] == ("--",)
    operands = _operands(args)
    if heredoc is not None or len(operands) not in (1, 2) or not operands[0]:
        return _wrong("read", "it takes one path and at most one range of lines")
    window = _WINDOW.fullmatch(operands[1]) if len(operands) > 1 else None
    if len(operands) > 1 and window is None:
        return _wrong("read", f"{operands[1]!r} is no range of lines")
    first = int(window[1]) if window else 1
    last = int(window[2]) if window and window[2] else None
    if first < 1 or (last is not None and last < first):
        return _wrong("read", "lines count from 1, and TO is not before FROM")
    path = operands[0]
    if path.startswith("@") and not is_file:
        return ReadOutput(path[1:], first, last) if path[1:] else _wrong("read", "no CALL_ID")
    return Read(path, first, last)


def _write(args: tuple[str, ...], heredoc: str | None) -> Command:
    operands = _operands(args)
    if not operands or not operands[0]:
        return _wrong("write", "it needs a path")
    if len(operands) == 1 and heredoc is not None:
        return Write(operands[0], heredoc)
    if len(operands) == 2 and heredoc is None:  # noqa: PLR2004  # PATH and CONTENT
        return Write(operands[0], operands[1])
    return _wrong("write", "it takes the content as one quoted argument or as one heredoc")


def _edit(args: tuple[str, ...], heredoc: str | None) -> Command:
    path, base, rest = _path_and_base(args)
    if not path or base is None:
        return _wrong("edit", "it needs a path and --base")
    if not _HASH.fullmatch(base):
        return _wrong("edit", "--base is the hash that read printed, 12 to 64 hex digits")
    if heredoc is None:
        if len(rest) != 2:  # noqa: PLR2004  # OLD and NEW
            return _wrong("edit", "without a heredoc it takes OLD and NEW, each one argument")
        return Edit(path, base, ReplaceText(*rest))
    found = _RANGE.fullmatch(rest[0]) if len(rest) == 1 else None
    if found is None:
        return _wrong("edit", "with a heredoc it takes one range FROM:TO")
    first, last = int(found[1]), int(found[2])
    if first < 1 or last < first - 1:
        return _wrong("edit", "lines count from 1; FROM = TO+1 inserts before line FROM")
    return Edit(path, base, ReplaceLines(first, last, heredoc))


def _path_and_base(args: tuple[str, ...]) -> tuple[str | None, str | None, tuple[str, ...]]:
    """PATH and --base in either order; what follows both is taken as it stands."""
    path: str | None = None
    base: str | None = None
    rest = args
    while rest and (path is None or base is None):
        word, rest = rest[0], rest[1:]
        if word == "--base" and rest:
            base, rest = rest[0], rest[1:]
        elif word.startswith("--base="):
            base = word.removeprefix("--base=")
        elif path is not None:
            raise NotSimpleError(f"{word!r} stands where --base HASH is expected")
        elif word == "--":
            path, rest = (rest or ("",))[0], rest[1:]
        else:
            path = _operands((word,))[0]
    return path, base, rest
