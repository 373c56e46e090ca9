"""Law 7: `events` and `thread` know no clock, chance, environment, I/O; ids are derived.

import-linter checks the imports, too; here they are checked as they happen, in a new process, with
everything impure taken away.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import threadlog
from tests.helpers.fold_hashes import hash_of
from tests.helpers.thread_driver import Driver
from tests.helpers.threads import OPEN, Story
from threadlog import ids
from threadlog.thread import decide

PACKAGE = Path(threadlog.__file__).parent
CORE = sorted([*PACKAGE.glob("events/*.py"), *PACKAGE.glob("thread/*.py"), PACKAGE / "ids.py"])
IMPURE = {
    *("asyncio", "datetime", "io", "logging", "os", "pathlib", "random", "secrets", "select"),
    *("socket", "sqlite3", "subprocess", "tempfile", "threading", "time", "urllib", "uuid"),
}
BUILT_IN = {"open", "input", "print", "breakpoint", "exec", "eval", "__import__", "id", "hash"}


def imports_of(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module)):
                found.add(module)
            case _:
                pass
    return found


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_law_7_no_module_of_the_core_imports_anything_impure(path: Path) -> None:
    tree = ast.parse(path.read_text())
    roots = {name.partition(".")[0] for name in imports_of(tree)}
    allowed = {"uuid"} if path.name == "ids.py" else set()
    assert roots & IMPURE == allowed
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    assert not called & BUILT_IN
    ours = {name for name in imports_of(tree) if name.startswith("threadlog.")}
    below = ("events", "thread", "ids", "limits", "errors")
    assert all(name.split(".")[1] in below for name in ours)


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_law_7_no_module_of_the_core_keeps_state(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Global | ast.Nonlocal)]
    assert not [n.lineno for n in ast.walk(tree) if isinstance(n, ast.AsyncFunctionDef | ast.Await)]


PROGRAM = """
import sys
from tests.helpers.fold_hashes import hash_of
from tests.helpers.thread_driver import Driver
events = [entry.event for entry in Driver(7).run().entries]

import builtins, os, random, time, uuid
def refuse(*_, **__): raise AssertionError("the core reached for the world")
WORLD = {time: ("time", "monotonic", "time_ns"), random: ("random", "randint"),
         uuid: ("uuid4", "uuid1"), os: ("getenv", "urandom"), builtins: ("open", "input")}
for module, names in WORLD.items():
    for name in names: setattr(module, name, refuse)
print(hash_of(events))
"""


def test_law_7_the_fold_runs_where_the_world_is_taken_away() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=PACKAGE.parents[1],
        env={"PYTHONPATH": f"{PACKAGE.parent}:{PACKAGE.parents[1]}"},
        capture_output=True,
        check=True,
        text=True,
    )
    here = hash_of(entry.event for entry in Driver(7).run().entries)
    assert done.stdout.strip() == here


def test_law_7_equal_arguments_give_an_equal_answer() -> None:
    state = Story().go(*OPEN).state
    assert decide.decide(state, 5) == decide.decide(state, 5)
    assert len({hash_of(e.event for e in Driver(3).run().entries) for _ in range(3)}) == 1


def test_law_7_ids_that_a_retry_meets_again_are_derived() -> None:
    thread = ids.new_thread_id(ids.LOCAL_TENANT, "key")
    worker = ids.WorkerId("w")

    def all_ids() -> list[str]:
        turn = ids.turn_id(thread, 3)
        claim = ids.claim_id(turn, 1, 2, worker, ids.Seq(9))
        return [
            ids.new_thread_id(ids.LOCAL_TENANT, "key"),
            ids.input_id(ids.LOCAL_TENANT, thread, "message.send", "key"),
            turn,
            claim,
            ids.call_id(claim, 0),
            ids.caused_id(claim, "model.responded"),
        ]

    assert all_ids() == all_ids()
    assert len(set(all_ids())) == len(all_ids())
    assert all(text[14] == "5" for text in all_ids()), "uuid5"
    assert ids.draw()[14] == "4", "the one that is drawn is not among them"
