"""What a command line is counted as."""

from threadlog.thread.command_line import Edit, Read, ReadOutput, ShellLine, Write, parse

_WORDS: dict[type, str] = {
    Read: "read",
    ReadOutput: "read",
    Write: "write",
    Edit: "edit",
    ShellLine: "shell",
}


def command_label(line: str | None) -> str:
    """`read`, `write`, `edit` or `shell`; `other`: a wrong line, or None, nobody knows it."""
    return "other" if line is None else _WORDS.get(type(parse(line)), "other")
