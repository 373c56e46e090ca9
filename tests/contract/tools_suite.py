"""What every implementation of the tools port promises: calls, their end, their workspace."""

import asyncio
import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.bench_tools import Bench, until
from threadlog import limits
from threadlog.errors import LateError, RefusedError
from threadlog.ids import CallId, TenantId, ThreadId, WorkspaceId
from threadlog.limits import MIB
from threadlog.ports.tools import ToolCall, WorkspaceRef

STUBBORN = "trap '' TERM INT HUP; touch started; (setsid sleep 600 &) ; sleep 600; sleep 600"


class ToolsSuite:
    """Inherit, and define the fixture `bench`: one implementation with a prepared workspace."""

    async def test_F50_one_line_is_one_call(self, bench: Bench) -> None:
        """A line that chains commands is one process tree, one outcome and one output."""
        result = await bench.run("echo one > a.txt && cat a.txt; (echo two | cat); exit 3")
        assert (result.outcome, result.output, result.exit_code) == ("error", b"one\ntwo\n", 3)
        assert len(set(bench.calls)) == 1

    async def test_a_call_runs_in_its_workspace(self, bench: Bench) -> None:
        bench.put("a.txt", b"content")
        result = await bench.run("cat a.txt; echo new > b.txt")
        assert (result.outcome, result.output, result.exit_code) == ("ok", b"content", 0)
        assert (bench.folder / "b.txt").read_text() == "new\n"
        assert bench.records() == []

    async def test_F53_stdout_and_stderr_come_as_they_were_written(self, bench: Bench) -> None:
        result = await bench.run("for i in 1 2 3; do echo out$i; echo err$i >&2; done")
        assert result.output == b"out1\nerr1\nout2\nerr2\nout3\nerr3\n"
        assert result.output_bytes == len(result.output)

    async def test_F53_a_long_output_is_kept_up_to_the_cap_and_counted(self, bench: Bench) -> None:
        total = 3 * limits.OUTPUT_BYTES_MAX
        result = await bench.run(f"head -c {total} /dev/zero; echo end")
        assert result.outcome == "ok"
        assert len(result.output) == limits.OUTPUT_BYTES_MAX
        assert result.output_bytes == total + 4

    @pytest.mark.parametrize(
        ("line", "exit_code", "killer", "reason"),
        [
            ("exit 300", 44, None, "exit"),
            ("kill -9 $$", None, signal.SIGKILL, "signal"),
            ("kill -11 $$", None, signal.SIGSEGV, "signal"),
            ("exit 255", 255, None, "exit"),
            ("exit 1", 1, None, "exit"),
            ("no-such-command", 127, None, "exit"),
            ("if", 2, None, "exit"),
        ],
    )
    async def test_C56_how_a_command_ended(
        self, bench: Bench, line: str, exit_code: int | None, killer: int | None, reason: str
    ) -> None:
        result = await bench.run(line)
        assert result.outcome == "error"
        assert (result.exit_code, result.signal, result.reason) == (exit_code, killer, reason)

    async def test_a_line_that_begins_with_a_hyphen_is_no_option(self, bench: Bench) -> None:
        result = await bench.run("-x")
        assert (result.outcome, result.exit_code) == ("error", 127)

    async def test_standard_input_is_empty_and_no_terminal(self, bench: Bench) -> None:
        assert await bench.text("cat; test -t 0 || echo none") == "none\n"

    async def test_C60_the_environment_is_constant(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("THREADLOG_CANARY", "secret")
        monkeypatch.setenv("CANARY", "secret")
        await bench.run("export LD_PRELOAD=/x.so GIT_SSH_COMMAND=evil; echo X=1 > .env")
        found = await bench.text("env")
        names = {line.partition("=")[0] for line in found.splitlines()}
        own = {"THREADLOG_CALL_ID", "THREADLOG_ATTEMPT", "THREADLOG_IDEMPOTENCY_KEY"}
        assert names == {"PATH", "HOME", "TMPDIR", "LANG", "TERM", "PWD"} | own

    async def test_every_attempt_of_a_call_sees_the_same_key(self, bench: Bench) -> None:
        line = "echo $THREADLOG_IDEMPOTENCY_KEY $THREADLOG_CALL_ID $THREADLOG_ATTEMPT"
        results = [
            await bench.tools.run(
                ToolCall(CallId("call-7"), attempt, line, "key of call 7", 10_000),
                bench.workspace,
                may_start=lambda: True,
            )
            for attempt in (1, 2)
        ]
        assert [r.output for r in results] == [
            b"key of call 7 call-7 1\n",
            b"key of call 7 call-7 2\n",
        ]

    async def test_C57_at_the_deadline_the_whole_tree_dies(self, bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        result = await bench.run(STUBBORN, timeout_ms=400)
        passed_ms = (loop.time() - start) * 1000
        assert (result.outcome, result.reason) == ("timeout", "deadline")
        assert (bench.folder / "started").exists()
        assert bench.alive() == 0
        assert 400 <= passed_ms < 400 + limits.KILL_WAIT_MS
        assert bench.records() == []

    @pytest.mark.parametrize("line", ["touch marker", "write marker x"])
    async def test_a_call_that_may_not_start_any_more_starts_nothing(
        self, bench: Bench, line: str
    ) -> None:
        asked: list[int] = []

        def late() -> bool:
            [record] = bench.records()
            asked.append(len(json.loads((bench.state / record).read_text())["processes"]))
            return False

        with pytest.raises(LateError):
            await bench.run(line, may_start=late)
        [processes] = asked
        assert processes > 0, "it is asked when all stands ready and is on record, and once"
        assert not (bench.folder / "marker").exists()
        assert bench.alive() == 0
        assert bench.records() == []
        assert (await bench.run(line)).outcome == "ok"

    async def test_time_that_passes_while_the_sandbox_starts_counts(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loop, spawn = asyncio.get_running_loop(), subprocess.Popen
        end = loop.time() + 0.3

        def slow(*arguments: Any, **options: Any) -> Any:
            time.sleep(0.3)  # noqa: TID251  # the loop itself is held up
            return spawn(*arguments, **options)

        monkeypatch.setattr(subprocess, "Popen", slow)
        with pytest.raises(LateError):
            await bench.run("touch marker", may_start=lambda: loop.time() < end)
        assert not (bench.folder / "marker").exists()
        assert bench.alive() == 0

    async def test_no_call_waits_for_the_helper(self, bench: Bench) -> None:
        bench.tools._helper = None
        await bench.tools.prepare(bench.workspace)
        assert bench.tools._helper is not None, "it is compiled before the claim"

    async def test_a_cancel_kills_the_whole_tree_before_it_goes_on(self, bench: Bench) -> None:
        task = asyncio.create_task(bench.run(STUBBORN))
        await until((bench.folder / "started").exists)
        assert bench.alive() > 0
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # a second one does not cut the killing short
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bench.alive() == 0
        assert bench.records() == []

    async def test_a_cancel_at_any_moment_leaves_nothing(self, bench: Bench) -> None:
        await bench.run("true")
        loop = asyncio.get_running_loop()
        for number in range(60):
            task = asyncio.create_task(bench.run("sleep 600 & sleep 600"))
            end = loop.time() + number / 5_000  # finer than a timer, over the time of a start
            while loop.time() < end:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert bench.alive() == 0
        assert bench.records() == []

    @pytest.mark.parametrize(
        "line",
        [
            "(setsid sleep 600 &)",
            "(setsid nohup sleep 600 >/dev/null 2>&1 &)",
            "sleep 600 & echo $!",
            "(while :; do echo x; done &) ; exit 0",
        ],
    )
    async def test_X5_C55_what_is_left_behind_is_gone_at_once(
        self, bench: Bench, line: str
    ) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        result = await bench.run(line)
        assert result.outcome == "ok"
        assert loop.time() - start < 2
        assert bench.alive() == 0

    async def test_X10_a_tree_above_its_memory_is_killed(self, hungry: Bench) -> None:
        hog = "python3 -c 'b = bytearray(400 << 20); import time; time.sleep(60)' & wait"
        result = await hungry.run(hog, timeout_ms=20_000)
        assert (result.outcome, result.reason) == ("error", "memory")
        assert hungry.alive() == 0
        assert (await hungry.run("true")).outcome == "ok"

    async def test_calls_run_side_by_side(self, bench: Bench) -> None:
        lines = [f"echo {n}; sleep 0.2" for n in range(8)]
        loop = asyncio.get_running_loop()
        start = loop.time()
        results = await asyncio.gather(*(bench.run(line) for line in lines))
        assert [r.output for r in results] == [f"{n}\n".encode() for n in range(8)]
        assert loop.time() - start < 1.5

    @pytest.mark.parametrize(
        "line",
        ["read", "write a.txt", "read a | cat", "read @c0ffee 1:2", "", "echo \0", "x" * 2 * MIB],
    )
    async def test_C43_what_is_no_command_starts_nothing(self, bench: Bench, line: str) -> None:
        with pytest.raises(RefusedError):
            await bench.run(line)
        assert bench.records() == []

    async def test_C43_the_longest_line_runs(self, bench: Bench) -> None:
        line = "echo ok #"
        long = line + "x" * (limits.COMMAND_BYTES_MAX - len(line))
        assert await bench.text(long) == "ok\n"
        written = "write big.txt '" + "y" * (limits.COMMAND_BYTES_MAX - 16) + "'"
        assert (await bench.run(written)).outcome == "ok"

    async def test_an_id_that_is_no_file_name_starts_nothing(self, bench: Bench) -> None:
        for call_id in ("", "../x", "a/b", "x" * 100):
            call = ToolCall(CallId(call_id), 1, "touch ran", "key", 10_000)
            with pytest.raises(RefusedError):
                await bench.tools.run(call, bench.workspace, may_start=lambda: True)
        assert not (bench.folder / "ran").exists()

    async def test_a_running_call_is_on_record_and_was_told_no_secret(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "canary")
        task = asyncio.create_task(
            bench.run("touch started; until test -e go; do sleep 0.01; done")
        )
        await until((bench.folder / "started").exists)
        assert bench.records() == [f"{bench.calls[0]}.1.json"]
        body = json.loads((bench.state / bench.records()[0]).read_text())
        for pid, _ in body["processes"]:
            assert b"canary" not in Path(f"/proc/{pid}/environ").read_bytes()
        bench.put("go", b"")
        assert (await task).outcome == "ok"
        assert bench.records() == []

    async def test_workspaces_do_not_see_each_other(self, bench: Bench) -> None:
        other = bench.managed("other")
        await bench.tools.prepare(other)
        await bench.run("echo mine > only-here")
        assert (await bench.run("ls", workspace=other)).output == b""

    @pytest.mark.parametrize(
        ("tenant", "thread"),
        [("..", "x"), ("local", "../../etc"), ("local", "x"), ("a/b", "x"), ("", "")],
    )
    async def test_C24_ids_name_no_other_folder(
        self, bench: Bench, tenant: str, thread: str
    ) -> None:
        ref = WorkspaceRef(WorkspaceId("w"), TenantId(tenant), ThreadId(thread), None)
        with pytest.raises(RefusedError):
            await bench.tools.prepare(ref)

    async def test_S5_a_workspace_that_is_gone_is_refused(self, bench: Bench) -> None:
        await bench.run("echo x > a.txt")
        bench.folder.rename(bench.root / "elsewhere")
        for _ in range(2):
            with pytest.raises(RefusedError):
                await bench.tools.prepare(bench.workspace)
            with pytest.raises(RefusedError):
                await bench.run("true")
        assert not bench.folder.exists()

    async def test_S5_a_workspace_that_became_a_link_is_refused(self, bench: Bench) -> None:
        bench.folder.rename(bench.root / "elsewhere")
        bench.folder.symlink_to(bench.root / "elsewhere")
        with pytest.raises(RefusedError):
            await bench.tools.prepare(bench.workspace)
        with pytest.raises(RefusedError):
            await bench.run("true")

    async def test_an_attached_folder_with_our_own_data_is_refused(self, bench: Bench) -> None:
        for path in (bench.root.parent, bench.root, bench.state, Path("/")):
            with pytest.raises(RefusedError):
                await bench.tools.prepare(bench.attached(path))
