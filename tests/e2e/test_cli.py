"""Every command as a person or a program uses it: real processes, real streams, real codes."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.arch.tree import ROOT
from tests.helpers.command_line import CommandLine, Ended
from tests.helpers.json_schema import findings
from threadlog.events.codec import from_cloud_event

EVIL = "\x1b]52;c;cm0gLXJm\x07\x1b[2Jfine\x9b31m"
REPLIES: tuple[dict[str, object], ...] = (
    {
        "text": f"I look around. {EVIL}",
        "calls": ["cat notes.txt", "printf '\\033[31mred\\033]0;title\\007'; exit 3"],
        "usage": {"input": 100, "output": 20},
    },
    {"text": f"The notes say hello. {EVIL}", "usage": {"input": 200, "output": 10}},
)


def schema(name: str) -> dict[str, object]:
    found = json.loads((ROOT / f"schemas/cli/{name}.schema.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A folder that the users of the sandbox may enter."""
    path = Path(tempfile.mkdtemp(prefix="tl-", dir="/tmp"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def cli(home: Path) -> CommandLine:
    made = CommandLine(home)
    (made.folder / "notes.txt").write_text("hello from the project\n")
    made.script("replies", *REPLIES)
    return made


@pytest.fixture(scope="module")
def told(cli: CommandLine) -> Ended:
    """The first run on this log; everything else reads what it left."""
    return cli.run("run", "what do the notes say?", "--copy", "--script", cli.home / "replies.json")


@pytest.fixture(scope="module")
def thread(cli: CommandLine, told: Ended) -> str:
    assert told.code == 0, told.err
    document = cli.run("thread", "ls", "--json").json()
    assert isinstance(document["threads"], list)
    return str(document["threads"][0]["thread_id"])


def test_F83_the_answer_alone_is_on_stdout(told: Ended) -> None:
    assert told.code == 0, told.err
    assert told.out == "The notes say hello. fine\n"
    assert "$ cat notes.txt  ok" in told.err
    assert "exit code 3" in told.err
    assert "completed, 2 steps" in told.err


def test_C61_no_escape_of_model_or_tool_is_shown(
    cli: CommandLine, told: Ended, thread: str
) -> None:
    shown = [told.out, told.err]
    for verb in ("show", "tail", "tree"):
        shown += [
            cli.run("thread", verb, thread).out,
            cli.run("thread", verb, thread, "--json").out,
        ]
    text = "".join(shown)
    assert "red" in text
    assert not [char for char in text if char in "\x1b\x07\x9b"]


def test_F83_json_is_one_document_that_fits_its_schema(cli: CommandLine, thread: str) -> None:
    for line, name in (
        ("thread ls --json", "thread-ls"),
        ("thread show last --json", "thread-show"),
        ("thread tree last --json", "thread-tree"),
        ("thread tree last --of 5 --json", "thread-tree"),
        ("usage --json", "usage"),
        ("usage --by thread,turn,day --json", "usage"),
        (f"usage --thread {thread} --json", "usage"),
        ("doctor --json", "doctor"),
        ("version --json", "version"),
    ):
        ended = cli.run(*line.split())
        assert ended.code == 0, (line, ended)
        assert findings(ended.json(), schema(name)) == [], line
        assert ended.err == "", line


def test_F83_run_prints_one_document(cli: CommandLine, thread: str) -> None:
    script = cli.home / "replies.json"
    ended = cli.run("run", "again", "--copy", "--json", "--script", script)
    document = ended.json()
    assert ended.code == 0
    assert findings(document, schema("run")) == []
    assert (document["verdict"], document["steps"]) == ("completed", 2)
    assert str(document["answer"]).endswith(EVIL)
    assert document["thread_id"] != thread


def test_F83_streams_are_lines_of_cloud_events(cli: CommandLine, thread: str) -> None:
    ended = cli.run("thread", "tail", thread[:6], "--from", "0", "--json")
    events = [from_cloud_event(line.encode()) for line in ended.out.splitlines()]
    assert [seq for _, seq in events] == list(range(len(events)))
    assert {str(event.thread_id) for event, _ in events} == {thread}
    by_id = {event.event_id for event, _ in events}
    assert all(event.caused_by in by_id for event, _ in events if event.caused_by)


def test_reads_for_people(cli: CommandLine, thread: str) -> None:
    listed = cli.run("thread", "ls")
    assert listed.out.splitlines()[0].split()[:2] == ["THREAD", "STATUS"]
    assert thread[:8] in listed.out
    shown = cli.run("thread", "show", thread)
    assert f"thread  {thread}" in shown.out
    assert "hello from the project" in shown.out
    assert "error, exit code 3" in shown.out
    tail = cli.run("thread", "tail", thread, "-n", "1")
    assert tail.out.count("\n") == 1
    assert "turn.finished" in tail.out
    assert "earlier events" in tail.err
    drawn = cli.run("thread", "tree", thread)
    assert "└─ " in drawn.out
    table = cli.run("usage")
    assert "scripted/replies" in table.out


def test_windows_into_a_thread(cli: CommandLine, thread: str) -> None:
    first = cli.run("thread", "tail", thread, "--from", "2", "-n", "3").out.splitlines()
    assert [line.split()[0] for line in first] == ["2", "3", "4"]
    assert cli.run("thread", "tail", thread, "--from", "9999").out == ""
    everything = cli.run("thread", "ls", "--json").json()["threads"]
    assert isinstance(everything, list)
    newest = everything[0]["thread_id"]
    one = cli.run("thread", "ls", "-n", "1", "--json").json()
    assert one["has_more"] is (len(everything) > 1)
    rest = cli.run("thread", "ls", "--before", newest, "--json").json()["threads"]
    assert rest == everything[1:]


def test_ancestors_and_descendants_of_one_event(cli: CommandLine, thread: str) -> None:
    document = cli.run("thread", "tree", thread, "--of", "6", "--json").json()
    events = document["events"]
    assert isinstance(events, list)
    assert document["of"] == next(e["event_id"] for e in events if e["seq"] == 6)
    types = [event["type"] for event in events]
    assert types[0] == "message.received"
    assert types.count("tool.requested") == 1
    by_prefix = cli.run("thread", "tree", thread, "--of", str(document["of"])[:10])
    assert "<== this one" in by_prefix.out
    assert cli.run("thread", "tree", thread, "--of", "999").code == 5
    assert cli.run("thread", "tree", thread, "--of", "no event").code == 2


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("00000000-0000-0000-0000-000000000000", 5),
        ("abcdef", 5),
        ("abc", 2),
        ("newest", 2),
        ("--", 2),
    ],
)
def test_a_thread_that_is_not_there(cli: CommandLine, thread: str, name: str, code: int) -> None:
    ended = cli.run("thread", "show", name)
    assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1)
    assert thread


def test_the_prompt_from_standard_input(cli: CommandLine) -> None:
    cli.script("echo", {"text": "one"}, {"text": "two"}, {"text": "three"})
    base = ("--script", cli.home / "echo.json")
    assert cli.run("run", "--copy", *base, stdin="hello\n").out == "one\n"
    assert cli.run("run", "-", "--thread", "last", *base, stdin="more\n").out == "two\n"
    assert '"hello"' in cli.run("thread", "tail", "last", "--json").out
    assert cli.run("run", *base, stdin="").code == 2


@pytest.mark.parametrize("line", ["thread show last", "thread tail last --json", "thread --help"])
def test_a_reader_that_has_gone_is_no_error(cli: CommandLine, thread: str, line: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "threadlog", *line.split()],
            stdout=writer,
            stderr=subprocess.PIPE,
            env={
                "PYTHONPATH": str(ROOT / "services"),
                "THREADLOG_DATA_DIR": str(cli.home / "data"),
                "PATH": "/usr/bin:/bin",
            },
            check=False,
            timeout=20,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr if "help" not in line else b"") == (141, b"")
    assert thread


def test_head_ends_it_without_a_word(cli: CommandLine, thread: str) -> None:
    ended = cli.shell(f"threadlog thread tail {thread} --from 0 | head -n 1")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.split()[2] == "thread.created"


def test_a_follower_ends_when_nobody_reads_it_any_more(cli: CommandLine, thread: str) -> None:
    """Also where the thread rests, so that nothing more is ever written."""
    ended = cli.shell(
        f"(threadlog thread tail {thread} --from 0 -f; echo $? >code) | head -n 1; cat code"
    )
    assert ended.err == ""
    first, code = ended.out.splitlines()
    assert first.split()[2] == "thread.created"
    assert code == "141"


@pytest.mark.parametrize("line", ["version", "thread ls", "thread show last", "thread ls --json"])
def test_a_closed_output_is_no_error(cli: CommandLine, thread: str, line: str) -> None:
    assert cli.shell(f"threadlog {line} >&-").code == 0
    ended = cli.shell(f"threadlog {line} 2>&-")
    assert ended.code == 0
    assert ended.out


def test_a_full_disk_is_said(cli: CommandLine, thread: str) -> None:
    ended = cli.shell(f"threadlog thread show {thread} > /dev/full")
    assert ended.code == 1
    assert ended.err.count("\n") == 1
    assert "No space left" in ended.err


def test_other_encodings_and_dumb_terminals(cli: CommandLine, thread: str) -> None:
    ended = cli.run("thread", "tree", thread, PYTHONIOENCODING="ascii")
    assert ended.code == 0
    assert "`- " in ended.out
    assert "`- " in cli.run("thread", "tree", thread, TERM="dumb").out
    assert "\x1b[" in cli.run("thread", "tree", thread, FORCE_COLOR="1").out
    assert "\x1b[" not in cli.run("thread", "tree", thread, FORCE_COLOR="1", NO_COLOR="1").out
    narrow = cli.run("thread", "tail", thread, COLUMNS="60").out.splitlines()
    assert max(map(len, narrow)) <= 60


def test_doctor_tells_of_a_wrong_setting_and_goes_on(cli: CommandLine) -> None:
    ended = cli.run("doctor", "--json", THREADLOG_SANDBOXX="off")
    document = ended.json()
    assert ended.code == 1
    assert document["worst"] == "fail"
    listed = document["findings"]
    assert isinstance(listed, list)
    assert (listed[0]["level"], listed[0]["group"]) == ("fail", "config")
    assert "THREADLOG_SANDBOX" in listed[0]["evidence"]
    assert len(listed) > 5


def test_F83_every_code_of_the_page_is_one_of_the_program() -> None:
    page = (ROOT / "docs/cli.md").read_text()
    for code in (0, 1, 2, 3, 4, 5, 6, 7, 130):
        assert f"| {code} | " in page
