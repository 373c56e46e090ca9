"""What the lexer takes means the same to a real `sh`: the shell is the oracle."""

import subprocess
import tempfile

from hypothesis import event, given, settings
from hypothesis import strategies as st

from threadlog.thread.shell_words import NotSimpleError, SimpleCommand, lex

# `w` prints its words and its input. There is nothing on PATH, and no letter names a command.
ORACLE = "w() { printf '%s\\0' \"$@\"; printf '\\0'; /bin/cat; }\n"
ALPHABET = "ab1 \t\n'\"\\$`#~*?[]{}!=<>|&;()-E"
PIECES = [
    "a",
    "b1",
    " ",
    "\t",
    "\\\n",
    "\\ ",
    "\\a",
    "\\'",
    "'a b'",
    "'\"\\'",
    "''",
    '"a b"',
    '"\\""',
]
PIECES += [
    '"\\a"',
    '"\\\n"',
    '"$"',
    "$ ",
    "#",
    "~",
    "{",
    "}",
    "!",
    "=",
    "]",
    "\n",
    "E",
    "\nE\n",
    "'\n'",
]
texts = st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | st.text(ALPHABET, max_size=9)


def heard_by_a_shell(line: str) -> SimpleCommand:
    """The words and the heredoc as `sh` gives them to a command."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["/bin/sh", "-c", ORACLE + line],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            cwd=folder,
            env={"PATH": folder, "HOME": "/expanded"},
        )
    words, _, body = done.stdout.decode().rpartition("\0\0")
    return SimpleCommand(("w", *words.split("\0")), body)


@settings(max_examples=300)
@given(texts, st.sampled_from(["", " <<E\n", " <<'E'\n", " <<-E\n"]))
def test_what_is_taken_means_the_same_to_a_shell(words: str, heredoc: str) -> None:
    line = f"w a{words}{heredoc}" + (f"{words}\nE\n" if heredoc else "")
    try:
        found = lex(line)
    except NotSimpleError:
        return
    event("a shell was asked")
    heard = heard_by_a_shell(line)
    assert (found.words, found.heredoc or "") == (heard.words, heard.heredoc)
