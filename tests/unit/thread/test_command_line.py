"""Which lines are built-ins, and that no other line which looks like one reaches the shell."""

import json
import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadlog import limits
from threadlog.thread import tool_text
from threadlog.thread.command_line import (
    USAGES,
    Command,
    Edit,
    Read,
    ReadOutput,
    ReplaceLines,
    ReplaceText,
    ShellLine,
    UsageProblem,
    Write,
    effect,
    parse,
)

HASH = "0123456789ab"
LINES_OF_BUILT_INS: dict[str, Command] = {
    "read a.py": Read("a.py", 1, None),
    "read a.py 7": Read("a.py", 7, None),
    "read a.py 7:9": Read("a.py", 7, 9),
    "  read\ta.py  ": Read("a.py", 1, None),
    "read a.py\n": Read("a.py", 1, None),
    "# what is in it?\nread a.py # all": Read("a.py", 1, None),
    "read \\\n a.py": Read("a.py", 1, None),
    "read 'a b.py'": Read("a b.py", 1, None),
    'read "a \\"b\\".py"': Read('a "b".py', 1, None),
    "read a\\ b'c'\"d\"": Read("a bcd", 1, None),
    "read -- -n": Read("-n", 1, None),
    "read -- @file": Read("@file", 1, None),
    "read ./@file": Read("./@file", 1, None),
    "read '*.py'": Read("*.py", 1, None),
    "read 'a$b'": Read("a$b", 1, None),
    "read a$": Read("a$", 1, None),
    "read x#y": Read("x#y", 1, None),
    "read a~": Read("a~", 1, None),
    "read @c0ffee 10:20": ReadOutput("c0ffee", 10, 20),
    "read @c0ffee": ReadOutput("c0ffee", 1, None),
    "write a.py 'x = 1'": Write("a.py", "x = 1"),
    "write a.py ''": Write("a.py", ""),
    "write a.py -x": Write("a.py", "-x"),
    "write -- -a.py x": Write("-a.py", "x"),
    "write a.py 'two\nlines\n'": Write("a.py", "two\nlines\n"),
    "write a.py <<'EOF'\n$HOME `id` \\n\nEOF\n": Write("a.py", "$HOME `id` \\n\n"),
    'write a.py <<"E"\n$x\nE': Write("a.py", "$x\n"),
    "write a.py <<\\E\n$x\nE": Write("a.py", "$x\n"),
    "write a.py <<EOF\nplain $ 5\nEOF": Write("a.py", "plain $ 5\n"),
    "write <<EOF a.py\nx\nEOF": Write("a.py", "x\n"),
    "write a.py <<EOF # new\nx\nEOF": Write("a.py", "x\n"),
    "write a.py <<EOF\nEOF": Write("a.py", ""),
    "write a.py <<-EOF\n\tx\n\t\ty\n\tEOF": Write("a.py", "x\ny\n"),
    "write a.py <<EOF\nx\nEOF\n\n# done\n": Write("a.py", "x\n"),
    "write a.py <<EOF\n EOF\nEOF": Write("a.py", " EOF\n"),
    f"edit a.py --base {HASH} old new": Edit("a.py", HASH, ReplaceText("old", "new")),
    f"edit --base {HASH} a.py old new": Edit("a.py", HASH, ReplaceText("old", "new")),
    f"edit a.py --base={HASH} old ''": Edit("a.py", HASH, ReplaceText("old", "")),
    f"edit a.py --base {HASH} -old --new": Edit("a.py", HASH, ReplaceText("-old", "--new")),
    f"edit -- -a --base {HASH} o n": Edit("-a", HASH, ReplaceText("o", "n")),
    f"edit a.py --base {HASH} '' n": Edit("a.py", HASH, ReplaceText("", "n")),
    f"edit a.py --base {HASH} 3:4 <<E\nx\nE": Edit("a.py", HASH, ReplaceLines(3, 4, "x\n")),
    f"edit a.py --base {HASH} 1:0 <<E\nx\nE": Edit("a.py", HASH, ReplaceLines(1, 0, "x\n")),
    f"edit a.py --base {HASH} 3:4 <<E\nE": Edit("a.py", HASH, ReplaceLines(3, 4, "")),
}
SHELL_LINES = [
    "ls",
    "cat a.py | read x",
    "'read' x",
    "command read x",
    "reader a.py",
    "read_config a.py",
    "read=5",
    "X=1 read a.py",
    "while read -r line; do echo $line; done < a.py",
    "(read x)",
    "echo read a.py",
    "writes a b",
    "edit.sh a.py",
    "./read a.py",
    "cat <<EOF\nnever closed",
    "-x",
]
PROBLEMS = [
    "read a.py | head",
    "read a.py > b.py",
    "read a.py 2>&1",
    "read < a.py",
    "read a.py && ls",
    "read a.py; ls",
    "read a.py;",
    "read a.py &",
    "read a.py\nls",
    "read;ls",
    "read|cat",
    "read $FILE",
    "read ${FILE}",
    'read "$FILE"',
    "read $(ls)",
    "read `ls`",
    'read "`ls`"',
    "read *.py",
    "read a?.py",
    "read [ab].py",
    "read ~/a.py",
    "read $'a'",
    'read $"a"',
    "read 'a.py",
    'read "a.py',
    "read a.py\\",
    "read (a)",
    "read a.py <<EOF\nx\nEOF",
    "read a.py <<<x",
    "read",
    'read ""',
    "read --",
    "read a b",
    "read a 1 2",
    "read a 0",
    "read a 5:4",
    "read a 1:",
    "read a ²",
    "read a \uff11",
    "read a 1234567890",
    "read -n a.py",
    "read @",
    "write",
    "write ''",
    "write a.py",
    "write a b c",
    "write -f a b",
    "write --",
    "edit --",
    "edit -- ''",
    f"edit --base {HASH} --",
    "write a.py b <<EOF\nx\nEOF",
    "write a.py <<A <<B\nx\nA\ny\nB",
    "write a.py 0<<EOF\nx\nEOF",
    "write a.py <<EOF\nx",
    "write a.py <<EOF",
    "write a.py <<EOF\n$HOME\nEOF",
    "write a.py <<EOF\n`id`\nEOF",
    "write a.py <<EOF\na\\\\b\nEOF",
    "write a.py <<EOF\nx\nEOF\nls",
    "write a.py <<EOF | sh\nx\nEOF",
    "write a.py <<'EOF'x\nx\nEOFx",
    "edit",
    "edit a.py old new",
    f"edit a.py --base {HASH}",
    f"edit a.py --base {HASH} old",
    f"edit a.py --base {HASH} old new more",
    f"edit --base {HASH}",
    "edit a.py --base 0123456789a old new",
    "edit a.py --base 0123456789AB old new",
    "edit a.py --base",
    "edit a.py old --base 0123456789ab new",
    f"edit -x --base {HASH} old new",
    f"edit a.py --base {HASH} 3 <<E\nx\nE",
    f"edit a.py --base {HASH} 0:0 <<E\nx\nE",
    f"edit a.py --base {HASH} 5:3 <<E\nx\nE",
    f"edit a.py --base {HASH} old new <<E\nx\nE",
]


@pytest.mark.parametrize("line", LINES_OF_BUILT_INS)
def test_F50_built_ins_only_when_the_line_is_one_simple_command(line: str) -> None:
    assert parse(line) == LINES_OF_BUILT_INS[line]


@pytest.mark.parametrize("line", SHELL_LINES)
def test_F50_all_else_goes_to_the_shell(line: str) -> None:
    assert parse(line) == ShellLine(line)


@pytest.mark.parametrize("line", PROBLEMS)
def test_F50_a_line_that_begins_like_a_built_in_never_reaches_the_shell(line: str) -> None:
    found = parse(line)
    assert isinstance(found, UsageProblem)
    assert USAGES[re.split(r"\W", line)[0]] in found.message


@pytest.mark.parametrize("line", ["", " ", "\n\t\n"])
def test_an_empty_line_is_a_usage_problem(line: str) -> None:
    assert isinstance(parse(line), UsageProblem)


@pytest.mark.parametrize("line", ["ls\0", "read a\0b", "echo \ud800", "read \udfff"])
def test_C43_what_is_no_text_is_a_usage_problem(line: str) -> None:
    assert isinstance(parse(line), UsageProblem)


def test_C43_the_longest_line_that_linux_takes() -> None:
    longest = "é" * (limits.COMMAND_BYTES_MAX // 2)
    assert parse(longest) == ShellLine(longest)
    assert isinstance(parse(longest + "é"), UsageProblem)


def test_only_reading_is_pure() -> None:
    pure = {line for line, command in LINES_OF_BUILT_INS.items() if effect(command) == "pure"}
    assert pure == {line for line in LINES_OF_BUILT_INS if re.match(r"(# .*\n)?\s*read\b", line)}
    assert effect(ShellLine("cat a.py")) == "unsafe"
    assert effect(UsageProblem("")) == "unsafe"


no_halves = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
words = no_halves.filter(lambda text: text[:1] not in ("", "-", "@"))


@given(st.text())
def test_every_text_has_an_answer(line: str) -> None:
    parse(line)
    for word in ("read ", "write ", "edit "):
        assert not isinstance(parse(word + line), ShellLine)


@given(words, no_halves)
def test_quoted_words_arrive_as_they_are(path: str, content: str) -> None:
    line = f"write {shlex.quote(path)} {shlex.quote(content)}"
    assert parse(line) == Write(path, content)


@given(words, no_halves.filter(lambda text: "EOF" not in text))
def test_a_heredoc_arrives_as_it_is(path: str, content: str) -> None:
    text = f"{content}\n"
    line = f"write {shlex.quote(path)} <<'EOF'\n{text}EOF"
    assert parse(line) == Write(path, text)


def test_the_tool_text_shows_every_form_and_is_short() -> None:
    assert len(tool_text.TOOL_DESCRIPTION.splitlines()) < 25
    for usage in USAGES.values():
        for form in usage.replace(", or ", "\n").splitlines():
            assert form.partition(" and ")[0].partition(" <<")[0] in tool_text.TOOL_DESCRIPTION


def test_the_tool_parameters_are_canonical_json() -> None:
    schema = json.loads(tool_text.TOOL_PARAMETERS)
    canonical = json.dumps(schema, sort_keys=True, separators=(",", ":"))
    assert canonical == tool_text.TOOL_PARAMETERS
    assert list(schema["properties"]) == ["command"]
