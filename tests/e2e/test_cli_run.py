"""`threadlog run`, `up`, `scripted-model` and `demo`: real turns, real signals, real exit codes."""

import json
import os
import shutil
import signal
import sqlite3
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.arch.tree import ROOT
from tests.helpers.command_line import CommandLine, end, wait_for
from tests.helpers.json_schema import findings


@pytest.fixture
def cli(short_dir: Path) -> CommandLine:
    return CommandLine(short_dir)


@pytest.fixture
def quick(cli: CommandLine) -> tuple[str | Path, ...]:
    """The options of a run whose model says done at once."""
    return ("--copy", "--script", cli.script("quick", {"text": "done"}, {"text": "again"}))


@pytest.fixture
def slow(cli: CommandLine) -> tuple[str | Path, ...]:
    """The options of a run whose tool takes for ever."""
    script = cli.script("slow", {"text": "go", "calls": ["sleep 600"]}, {"text": "never"})
    return ("--copy", "--script", script)


def kinds(cli: CommandLine) -> list[tuple[str, dict[str, object]]]:
    """(type, body) of every event of the last thread."""
    lines = cli.run("thread", "tail", "last", "--from", "0", "--json").out.splitlines()
    events = [json.loads(line) for line in lines]
    return [(event["type"], event["data"]) for event in events]


@pytest.mark.parametrize(
    ("replies", "options", "verdict", "code"),
    [
        ([{"text": "half", "stop": "length"}], (), "max_tokens", 1),
        ([{"error": {"class": "bad_request"}}], (), "error", 1),
        ([{"calls": ["true"]}, {"text": "done"}], ("--max-steps", "1"), "budget", 7),
        ([{"calls": ["sleep 600"]}, {"text": "no"}], ("--timeout", "0.5"), "cancelled", 1),
    ],
)
def test_F12_a_turn_ends_with_one_verdict_and_its_code(
    cli: CommandLine,
    replies: list[dict[str, object]],
    options: tuple[str, ...],
    verdict: str,
    code: int,
) -> None:
    script = cli.script("replies", *replies)
    ended = cli.run("run", "go", "--copy", "--json", "--script", script, *options)
    assert (ended.code, ended.json()["verdict"]) == (code, verdict), ended
    assert verdict in ended.err
    assert [kind for kind, _ in kinds(cli)].count("turn.finished") == 1


def test_the_first_interrupt_cancels_the_turn(
    cli: CommandLine, slow: tuple[str | Path, ...]
) -> None:
    with cli.started("run", "go", "--json", *slow) as process:
        wait_for(process.stderr, "go")
        ended = end(process)
    assert (ended.code, ended.json()["verdict"]) == (130, "cancelled")
    types = [kind for kind, _ in kinds(cli)]
    assert types[-1] == "turn.finished"
    assert "cancel.requested" in types
    assert "threadlog thread show" in ended.err


def test_being_terminated_leaves_the_turn_to_the_next_command(
    cli: CommandLine, slow: tuple[str | Path, ...]
) -> None:
    with cli.started("run", "go", "--json", *slow) as process:
        wait_for(process.stderr, "go")
        ended = end(process, signal.SIGTERM)
    assert ended.code == 143
    assert json.loads(ended.out)["code"] == "interrupted"
    assert "cancel.requested" not in [kind for kind, _ in kinds(cli)]


def test_a_killed_run_is_carried_on_by_the_next(
    cli: CommandLine, quick: tuple[str | Path, ...]
) -> None:
    script = cli.script("later", {"text": "go", "calls": ["echo x"]}, {"text": "the end"})
    late = cli.script("late", {"text": "late", "delay_ms": 60_000})
    with cli.started("run", "go", "--copy", "--script", late) as process:
        wait_for(process.stderr, "thread")
        while not json.loads(cli.run("thread", "ls", "--json").out)["threads"]:
            assert process.poll() is None
        process.kill()
        process.wait()
    ended = cli.run("run", "next", "--copy", "--script", script)
    assert (ended.code, ended.out) == (0, "the end\n")
    rows = cli.run("thread", "ls", "--json").json()["threads"]
    assert isinstance(rows, list)
    assert {row["status"] for row in rows} == {"idle"}
    assert [row["verdict"] for row in rows].count("completed") == 2


def test_F19_a_thread_continues_with_other_settings(
    cli: CommandLine, quick: tuple[str | Path, ...]
) -> None:
    (cli.home / "brief.md").write_text("Be brief.")
    assert cli.run("run", "one", "--system", "Be kind.", *quick).out == "done\n"
    script = quick[-1]
    more = ("--system", cli.home / "brief.md", "--max-steps", "3", "--script", script)
    ended = cli.run("run", "two", "--thread", "last", *more)
    assert (ended.code, ended.out) == (0, "again\n")
    configured = [body for kind, body in kinds(cli) if kind == "thread.configured"]
    assert [body.get("system_prompt") for body in configured] == ["Be kind.", "Be brief."]
    assert configured[1].get("limits") == {"steps_max": 3}
    assert configured[1].get("workspace") is None
    plain = cli.run("run", "three", "--thread", "last", "--script", script)
    assert plain.code == 1, "the script has ended"


def test_copy_leaves_the_folder_as_it_is(cli: CommandLine) -> None:
    (cli.folder / "a.txt").write_text("old\n")
    script = cli.script("change", {"calls": ["cp a.txt b.txt; echo new > a.txt"]}, {"text": "ok"})
    assert cli.run("run", "change it", "--copy", "--script", script).code == 0
    assert [path.name for path in cli.folder.iterdir()] == ["a.txt"]
    assert (cli.folder / "a.txt").read_text() == "old\n"
    assert "made b.txt" not in cli.run("run", "x", "--copy", "--script", script).out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may not work in its own folder")
def test_root_is_told_to_copy(cli: CommandLine, quick: tuple[str | Path, ...]) -> None:
    ended = cli.run("run", "go", *quick[1:])
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "--copy" in ended.err
    assert cli.run("thread", "ls").out == "", "nothing was begun"


def test_an_attached_folder_is_worked_in(cli: CommandLine) -> None:
    if os.geteuid() == 0:
        os.chown(cli.folder, 12_345, 12_345)
    script = cli.script("write", {"calls": ["write hello.txt 'hi there'"]}, {"text": "ok"})
    ended = cli.run("run", "greet", "--script", script)
    assert ended.code == 0, ended.err
    assert (cli.folder / "hello.txt").read_text() == "hi there"


def test_two_runs_at_once_share_one_runtime(
    cli: CommandLine, quick: tuple[str | Path, ...]
) -> None:
    script = cli.script("both", {"text": "go", "calls": ["sleep 1"]}, {"text": "the end"})
    base = ("--copy", "--script", script)
    with cli.started("run", "first", *base) as first:
        wait_for(first.stderr, "go")
        second = cli.run("run", "second", *base)
        out, err = first.communicate(timeout=20)
    assert (second.code, second.out) == (0, "the end\n"), second.err
    assert (first.returncode, out) == (0, "the end\n"), err


def test_up_carries_what_others_ask_for(cli: CommandLine, quick: tuple[str | Path, ...]) -> None:
    with cli.started("up", "--script", quick[-1]) as up:
        wait_for(up.stderr, "ready")
        ended = cli.run("run", "go", "--json", *quick)
        assert (ended.code, ended.json()["answer"]) == (0, "done"), ended.err
        busy = cli.run("up", "--script", quick[-1])
        assert (busy.code, busy.err.count("\n")) == (3, 1)
        stopped = end(up)
    assert (stopped.code, stopped.out) == (0, "")


def test_tail_follows_until_it_is_interrupted(
    cli: CommandLine, quick: tuple[str | Path, ...]
) -> None:
    assert cli.run("run", "go", *quick).code == 0
    with cli.started("thread", "tail", "last", "-f", "--json") as process:
        wait_for(process.stdout, "turn.finished")
        more = cli.run("run", "more", "--thread", "last", "--script", quick[-1])
        assert more.code == 0
        wait_for(process.stdout, "message.received")
        ended = end(process)
    assert ended.code == 130
    assert cli.run("thread", "tail", "last", "--until", "turn").code == 0


def test_tail_ends_with_the_open_turn(cli: CommandLine) -> None:
    script = cli.script("short", {"text": "go", "calls": ["sleep 1.5"]}, {"text": "the end"})
    with cli.started("run", "go", "--copy", "--script", script) as process:
        wait_for(process.stderr, "go")
        tail = cli.run("thread", "tail", "last", "--until", "turn")
        assert tail.code == 0
        assert "turn.finished" in tail.out
        assert process.wait(20) == 0


def test_the_scripted_model_is_a_server(cli: CommandLine, quick: tuple[str | Path, ...]) -> None:
    with cli.started("scripted-model", quick[-1], "--quirk", "no-usage") as server:
        address = wait_for(server.stdout, "http://").strip()
        with urlopen(f"{address}/models", timeout=10) as answer:
            assert b'"scripted"' in answer.read()
        ended = cli.run("run", "go", "--copy", "--json", OPENAI_BASE_URL=address)
        assert ended.code == 0, ended.err
        document = ended.json()
        assert document["answer"] == "done"
        assert document["usage"] is None
        schema = json.loads((ROOT / "schemas/cli/run.schema.json").read_text())
        assert findings(document, schema) == []
        stopped = end(server)
    assert stopped.code == 0


@pytest.fixture
def clone(short_dir: Path) -> Path:
    """A clone whose path has spaces, in a folder that nobody else may enter."""
    closed = short_dir / "closed"
    closed.mkdir(mode=0o700)
    path = closed / "a clone with spaces"
    for part in ("services", "examples"):
        shutil.copytree(ROOT / part, path / part, ignore=shutil.ignore_patterns("__pycache__"))
    return path


def test_the_demo_runs_again_and_again(short_dir: Path, clone: Path) -> None:
    cli = CommandLine(short_dir, clone / "services")
    first, second = cli.run("demo"), cli.run("demo")
    for ended in (first, second):
        assert ended.code == 0, ended.err
        assert "completed after 5 steps" in ended.out
        assert "The example's tests pass in the workspace." in ended.out
        assert "sqlite3 " in ended.out
        assert "thread tail last --from 0" in ended.out
    file = clone / ".threadlog" / "demo.db"
    with sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True) as log:
        [(threads,)] = log.execute("select count(distinct thread_id) from events")
        rows = log.execute("select sequence, type, caused_by from events").fetchall()
    log.close()
    assert threads == 2, "each demo is a thread of its own"
    assert [kind for _, kind, _ in rows].count("turn.finished") == 2
    broken = (clone / "examples/broken-calculator/calculator.py").read_text()
    assert "right = _sum(rest)" in broken, "the example itself stays as it is"


def test_the_demo_fails_when_the_repair_does(short_dir: Path, clone: Path) -> None:
    script = clone / "examples" / "demo-script.json"
    replies = json.loads(script.read_text())
    script.write_text(json.dumps([*replies[:2], replies[-1]]))
    ended = CommandLine(short_dir, clone / "services").run("demo")
    assert ended.code == 1
    assert "do not pass" in ended.err
