"""A line as a shell's words, accepted only where a shell would expand nothing.

What this lexer accepts means the same to `sh`: quotes, backslashes, comments and one heredoc are
understood; a line that holds an operator, an expansion or a second command is refused with the
reason. So the words never mean something else here than they would in a shell.
"""

import re
from dataclasses import dataclass

BLANKS = " \t"
_OPERATORS = "|&;()<>"
_GLOBS = "*?["
# `$` is literal for a shell unless one of these follows.
_EXPANDS = re.compile(r"\$[A-Za-z0-9_({@*#?$!-]")
_HEREDOC = re.compile(
    r"<<(?P<tabs>-?)[ \t]*(?:'(?P<single>[^'\n]*)'|\"(?P<double>[^\"\n]*)\""
    r"|\\(?P<escaped>[\w.!-]+)|(?P<bare>[\w.!-]+))(?=[ \t\n]|\Z)"
)
_SKIPPED = re.compile(r"(?:[ \t\n]|\\\n|#[^\n]*)*")


class NotSimpleError(Exception):
    """The line is not one simple command free of expansions; the message says why."""


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """The words after quote removal, and the heredoc's text, or None without a heredoc."""

    words: tuple[str, ...]
    heredoc: str | None


def start(text: str) -> int:
    """Where the first command begins, behind blanks, empty lines and comments."""
    skipped = _SKIPPED.match(text)
    return skipped.end() if skipped else 0


def lex(text: str) -> SimpleCommand:
    """The one simple command that `text` is.

    Raises:  NotSimpleError: a shell would do more with it than split it into words.
    """
    return _Lexer(text).command()


class _Lexer:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = start(text)
        self._words: list[str] = []
        self._heredoc: re.Match[str] | None = None

    def command(self) -> SimpleCommand:
        while self._at < len(self._text) and self._text[self._at] != "\n":
            self._piece(self._text[self._at])
        body = None if self._heredoc is None else self._body(self._heredoc)
        if start(self._text[self._at :]) < len(self._text) - self._at:
            raise NotSimpleError("it is followed by another command; use one line for each")
        return SimpleCommand(tuple(self._words), body)

    def _piece(self, char: str) -> None:
        if char in BLANKS:
            self._at += 1
        elif self._text.startswith("\\\n", self._at):
            self._at += 2
        elif char == "#":
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end
        elif char == "<":
            self._open_heredoc()
        elif char in _OPERATORS:
            raise NotSimpleError(f"it holds the shell operator {char}")
        else:
            self._words.append(self._word())

    def _open_heredoc(self) -> None:
        found = _HEREDOC.match(self._text, self._at)
        if found is None or self._heredoc is not None:
            raise NotSimpleError("it holds a redirect other than one heredoc")
        self._heredoc = found
        self._at = found.end()

    def _word(self) -> str:
        begin, parts = self._at, []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in BLANKS or char == "\n" or char in _OPERATORS:
                break
            parts.append(self._part(char, is_first=self._at == begin))
        if self._text.startswith("<", self._at) and self._text[begin : self._at].isdigit():
            raise NotSimpleError("it holds a redirect of a numbered descriptor")
        return "".join(parts)

    def _part(self, char: str, *, is_first: bool) -> str:
        if char == "'":
            return self._single_quoted()
        if char == '"':
            return self._double_quoted()
        if char == "\\":
            return self._escaped()
        self._refuse_expansion(char)
        if char in _GLOBS or (char == "~" and is_first):
            raise NotSimpleError(f"a shell would expand the unquoted {char}; quote it")
        if char == "$" and self._text[self._at + 1 : self._at + 2] in ("'", '"'):
            raise NotSimpleError("shells disagree about a $ before a quote; quote the $")
        self._at += 1
        return char

    def _single_quoted(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise NotSimpleError("a quote is never closed")
        inner = self._text[self._at + 1 : end]
        self._at = end + 1
        return inner

    def _double_quoted(self) -> str:
        parts: list[str] = []
        self._at += 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return "".join(parts)
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in tuple('$`"\\\n'):
                parts.append(self._escaped())
                continue
            self._refuse_expansion(char)
            parts.append(char)
            self._at += 1
        raise NotSimpleError("a quote is never closed")

    def _escaped(self) -> str:
        following = self._text[self._at + 1 : self._at + 2]
        if not following:
            raise NotSimpleError("it ends in a backslash")
        self._at += 2
        return "" if following == "\n" else following

    def _refuse_expansion(self, char: str) -> None:
        if char == "`" or _EXPANDS.match(self._text, self._at):
            raise NotSimpleError(f"a shell would expand the {char}; use single quotes")

    def _body(self, heredoc: re.Match[str]) -> str:
        word = next(
            g for g in heredoc.group("single", "double", "escaped", "bare") if g is not None
        )
        lines: list[str] = []
        at = self._at + 1
        while at < len(self._text):
            end = self._text.find("\n", at)
            end = len(self._text) if end < 0 else end
            line = self._text[at:end].lstrip("\t") if heredoc["tabs"] else self._text[at:end]
            at = end + 1
            if line == word:
                self._at = min(at, len(self._text))
                text = "".join(f"{line}\n" for line in lines)
                if heredoc["bare"] is not None:
                    _refuse_expansion_in_body(text, word)
                return text
            lines.append(line)
        raise NotSimpleError(f"its heredoc is never closed by a line {word}")


def _refuse_expansion_in_body(text: str, word: str) -> None:
    """A heredoc with an unquoted word is taken only where a shell would not change its text."""
    if "`" in text or _EXPANDS.search(text) or re.search(r"\\[$`\\\n]", text):
        raise NotSimpleError(f"a shell would expand its heredoc; quote the word: <<'{word}'")
