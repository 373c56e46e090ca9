"""`--url`: the same commands through a gateway, which need a key and print the same."""

import contextlib
import json
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.arch.tree import ROOT
from tests.helpers.command_line import CommandLine, Ended, end, wait_for
from tests.helpers.doctor import faults, plain
from tests.helpers.json_schema import findings

OFF = {"THREADLOG_SANDBOX": "off", "THREADLOG_GATEWAY__PORT": "0"}
MODEL = ("--model", "scripted/small")
CALL = {"calls": ["echo hello > made.txt"], "text": "I make it."}
DONE = {"text": "all is well", "usage": {"input": 10, "output": 4}}
SCHEMA = json.loads((ROOT / "schemas/cli/doctor.schema.json").read_text())
SLOW = {"text": "slowly", "delay_ms": 60_000}


@dataclass(frozen=True)
class There:
    """`threadlog up` at an address, and a person elsewhere who has a key of it."""

    up: CommandLine
    url: str
    here: CommandLine
    process: subprocess.Popen[str]

    @property
    def token(self) -> Path:
        return self.up.home / "data" / "threadlog.db.token"

    def key(self, *options: str) -> str:
        """A new key."""
        made = self.up.run("keys", "create", "--json", *options)
        assert made.code == 0, made
        return str(made.json()["key"])

    def run(self, *arguments: str | Path, key: str | None = None, **more: str) -> Ended:
        """The command, from elsewhere; with the token of who runs it unless a key is given."""
        with_key = (
            {"THREADLOG_KEY_FILE": str(self.token)} if key is None else {"THREADLOG_KEY": key}
        )
        return self.here.run(*arguments, "--url", self.url, **with_key, **more)


@contextlib.contextmanager
def served(folder: Path, *replies: Mapping[str, object]) -> Iterator[There]:
    """A runtime that answers with these replies, over HTTP."""
    homes = [folder / name for name in ("up", "here")]
    for home in homes:
        home.mkdir()
    up, here = map(CommandLine, homes)
    with up.started("up", "--script", up.script("replies", *replies), **OFF) as process:
        line = wait_for(process.stderr, "HTTP on ")
        found = re.search(r"http://\S+:\d+", line)
        assert found is not None, line
        yield There(up, found[0].rstrip(","), here, process)


@pytest.mark.parametrize(
    "lines",
    [
        ("thread ls", "thread ls --json", "thread show last --json", "thread tail last --from 0",
         "thread show LAST --from 3 --limit 2", "thread tail last --until turn"),
        ("thread show last", "thread tail last --from 0 --json", "thread tree last",
         "thread tree last --of 5 --json", "usage --by thread,model --json", "usage --csv -t last"),
    ],
    ids=["a", "b"],
)  # fmt: skip
def test_every_command_prints_through_a_gateway_what_it_prints_on_the_file(
    short_dir: Path, lines: tuple[str, ...]
) -> None:
    with served(short_dir, CALL, DONE) as there:
        ran = there.run("run", "make a file", "--json", *MODEL)
        assert ran.code == 0, ran
        document = ran.json()
        schema = json.loads((ROOT / "schemas/cli/run.schema.json").read_text())
        assert findings(document, schema) == []
        assert (document["verdict"], document["answer"]) == ("completed", "all is well")
        # The gateway is that of this machine: it works in the folder that one stands in.
        assert (there.here.folder / "made.txt").read_text() == "hello\n"
        assert not (there.here.home / "data").exists()
        for line in lines:
            words = line.replace("LAST", str(document["thread_id"])[:8]).split()
            far, near = there.run(*words), there.up.run(*words)
            assert far.code == 0, (line, far)
            assert far.out == near.out, line
            assert far.out.strip(), line


def test_a_thread_is_continued_with_the_settings_that_it_has(short_dir: Path) -> None:
    with served(short_dir, CALL, DONE, {"text": "twice"}) as there:
        assert there.run("run", "make a file", *MODEL).code == 0
        again = there.run("run", "once more", "--thread", "last")
        assert (again.code, again.out) == (0, "twice\n"), again
        assert there.run("thread", "show", "0000000000").code == 5


def test_somebody_else_works_in_a_workspace_of_the_gateway(short_dir: Path) -> None:
    with served(short_dir, CALL, DONE) as there:
        key = there.key("--tenant", "acme", "--name", "ci")
        ran = there.run("run", "make a file", "--json", *MODEL, key=key)
        assert (ran.code, ran.json()["answer"]) == (0, "all is well"), ran
        assert list(there.here.folder.iterdir()) == []
        [made] = (there.up.home / "data" / "workspaces").rglob("made.txt")
        assert made.read_text() == "hello\n"
        shown = there.run("thread", "show", "last", "--json", key=key)
        assert (shown.code, shown.json()["voids"]) == (0, None), shown
        schema = json.loads((ROOT / "schemas/cli/thread-show.schema.json").read_text())
        assert findings(shown.json(), schema) == []
        assert "unknown number" in there.run("thread", "show", "last", key=key).out
        # Another tenant's thread is nobody's.
        assert there.run("thread", "show", "last").code == 5


def test_what_is_wrong_has_one_line_and_its_code(short_dir: Path) -> None:
    with served(short_dir, DONE) as there:
        key = there.key("--tenant", "acme", "--name", "ci")
        reads = there.key("--tenant", "acme", "--name", "reads", "--scope", "threads:read")
        folder = str(there.here.folder)
        for arguments, given, code, says in (
            (("run", "x", "--model", "small"), key, 2, "PROVIDER/NAME"),
            (("run", "x", "--copy", *MODEL), key, 2, "--copy"),
            (("run", "x", "--copy", *MODEL), None, 2, "--copy"),
            (("run", "x", "--workspace", folder, *MODEL), key, 2, "--workspace"),
            (("run", "x", "--script", there.here.script("s", DONE)), key, 2, "--script"),
            (("run", "x", *MODEL), reads, 4, "threads:write"),
            (("thread", "ls"), key[:-1] + ("1" if key[-1] == "0" else "0"), 4, "key"),
            (("thread", "ls"), "no key at all", 2, "THREADLOG_KEY"),
            (("thread", "show", "last"), reads, 5, "no thread"),
        ):
            ended = there.run(*arguments, key=given)
            assert (ended.code, says in ended.err) == (code, True), (arguments, ended)
            assert ended.err.count("\n") == 1, ended.err
            assert key not in ended.err
        no_key = there.here.run("thread", "ls", "--url", there.url)
        assert (no_key.code, "THREADLOG_KEY_FILE" in no_key.err) == (2, True)
        end(there.process)
        gone = there.here.run("thread", "ls", "--url", there.url, THREADLOG_KEY=key)
        assert gone.code == 3, gone


def test_the_first_interrupt_cancels_the_turn_there(short_dir: Path) -> None:
    with served(short_dir, SLOW) as there:
        environment = {"THREADLOG_URL": there.url, "THREADLOG_KEY_FILE": str(there.token)}
        with there.here.started("run", "go", "--json", *MODEL, **environment) as process:
            wait_for(process.stderr, "at http://")
            ended = end(process, signal.SIGINT)
        assert (ended.code, ended.json()["verdict"]) == (130, "cancelled"), ended


def test_a_turn_is_followed_from_elsewhere(short_dir: Path) -> None:
    with served(short_dir, {"text": "a", "delay_ms": 1_500}) as there:
        environment = {"THREADLOG_URL": there.url, "THREADLOG_KEY_FILE": str(there.token)}
        with there.here.started("run", "go", *MODEL, **environment) as process:
            wait_for(process.stderr, "at http://")
            tail = there.run("thread", "tail", "last", "--from", "0", "--until", "turn", "--json")
            assert process.wait(timeout=20) == 0
        types = [json.loads(line)["type"] for line in tail.out.splitlines()]
        assert (types[0], types[-1]) == ("thread.created", "turn.finished")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("threadlog.example.com", "address of a gateway"),
        ("ftp://threadlog.example.com", "address of a gateway"),
        ("https://ann:secret@threadlog.example.com", "no name or password"),
        ("https://threadlog.example.com/v1", "scheme, host and port alone"),
        ("https://threadlog.example.com?x=1", "scheme, host and port alone"),
        ("https://", "address of a gateway"),
        ("http://127.0.0.1:99999", "address of a gateway"),
    ],
)
def test_an_address_is_that_of_a_gateway_alone(short_dir: Path, url: str, says: str) -> None:
    cli = CommandLine(short_dir)
    by_flag = cli.run("thread", "ls", "--url", url)
    by_variable = cli.run("thread", "ls", THREADLOG_URL=url)
    for ended in (by_flag, by_variable):
        assert (ended.code, says in ended.err) == (2, True), ended
        assert "secret" not in ended.err
    assert "--url" in by_flag.err
    assert "THREADLOG_URL" in by_variable.err


def test_F106_doctor_asks_a_gateway(short_dir: Path) -> None:
    with served(short_dir, DONE) as there:
        told = there.run("doctor", "--json")
        assert told.code == 0, told
        assert findings(told.json(), SCHEMA) == []
        listed = told.json()["findings"]
        assert isinstance(listed, list)
        found = [(each["group"], each["check"]) for each in listed if each["level"] == "ok"]
        assert found == [
            *(("config", "settings"), ("config", "version")),
            *(("gateway", "reach"), ("gateway", "version"), ("gateway", "freshness")),
            ("terminal", "terminal"),
        ]
        revoked = there.run("doctor", "--json", key=f"threadlog_live_{'a' * 70}")
        assert revoked.code == 1
        said = revoked.json()["findings"]
        assert isinstance(said, list)
        [bad] = [each for each in said if each["level"] == "fail"]
        row = faults()["gateway-key-refused"]
        evidence = plain(bad["evidence"], {})
        assert (bad["check"], evidence, bad["fix"]) == (row.check, row.evidence, row.fix)
        assert "a" * 70 not in revoked.out
