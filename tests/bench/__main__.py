"""`make bench`: the workload `turn`, ours and the peer's in turn, in one run; ratios of medians.

Absolute figures hold for this machine at this hour; the ratio is the claim. Prints a table and
writes `bench-results.json`. `--profile` measures nothing and shows where the time of the cluster
goes: stretch by stretch of a turn, thread by thread, function by function.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.servers import ServerError, kafka_is_missing, redis_is_missing
from tests.bench.reports import breakdown, functions, threads
from tests.bench.workload import IN_FLIGHT, ONE_CLIENT_TURNS, TURNS_EACH, Round
from tests.helpers.servers import Broker, RedisServer

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PEERS = ROOT / ".venv-peers"
PARTITIONS = 4
"""As `make cluster` has."""


@dataclass(slots=True)
class Side:
    """One column. `missing`: why it is not run; None: it is."""

    title: str
    name: str
    command: list[str | Path]
    env: Mapping[str, str] = field(default_factory=dict)
    missing: str | None = None
    rounds: list[Round] = field(default_factory=list)

    def run(self, *arguments: str) -> Any:
        """One round, in a process of its own, in a folder of its own."""
        with tempfile.TemporaryDirectory(prefix="threadlog-bench-") as folder:
            done = subprocess.run(
                [*self.command, folder, *arguments],
                cwd=ROOT,
                env={**os.environ, **self.env},
                check=True,
                stdout=subprocess.PIPE,
                text=True,
                timeout=300,
            )
        return json.loads(done.stdout.strip().splitlines()[-1])


Value = Callable[[Round], float | None]


def _named(name: str) -> Value:
    return lambda measured: measured.get(name)


def _events_per_s(measured: Round) -> float | None:
    events = measured.get("events")
    return None if events is None else events * measured["turns_per_s"]


def _hops(measured: Round) -> float | None:
    appends = measured.get("service_appends")
    return None if appends is None else appends + 1  # and the client's


ROWS: tuple[tuple[str, Value, str], ...] = (
    ("turn p50, 1 client", _named("p50_ms"), "ms"),
    ("turn p99, 1 client", _named("p99_ms"), "ms"),
    (f"turns/s, {IN_FLIGHT} threads", _named("turns_per_s"), "1/s"),
    (f"events/s, {IN_FLIGHT} threads", _events_per_s, "1/s"),
    ("CPU a turn, ours", _named("cpu_ms"), "ms"),
    ("  planner", _named("cpu_planner_ms"), "ms"),
    ("  tool-runner", _named("cpu_tool-runner_ms"), "ms"),
    ("  projection", _named("cpu_projection_ms"), "ms"),
    ("  client", _named("cpu_client_ms"), "ms"),
    ("CPU a turn, broker", _named("cpu_broker_ms"), "ms"),
    ("CPU a turn, Redis", _named("cpu_redis_ms"), "ms"),
    ("appends a turn", _hops, ""),
)


def peer() -> Side:
    """The peer, installed now if need be."""
    python = PEERS / "bin" / "python"
    module = "tests.bench.langgraph_peer"
    side = Side("langgraph sqlite", "langgraph_sqlite", [python, "-m", module])
    stamp = PEERS / "installed"
    lock = (HERE / "peers.lock").read_text()
    if stamp.exists() and stamp.read_text() == lock:
        return side
    try:
        venv.create(PEERS, with_pip=True, clear=True)
        install = ["-m", "pip", "install", "--quiet", "--require-hashes", "-r"]
        subprocess.run([python, *install, HERE / "peers.lock"], check=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        side.missing = f"cannot install it: {error}"
        return side
    stamp.write_text(lock)
    return side


@contextmanager
def cluster() -> Iterator[Side]:
    """A broker and a Redis run, with the settings of a laptop, and the services beside them."""
    command: list[str | Path] = [sys.executable, "-m", "tests.bench.cluster"]
    side = Side("kafka + redis", "threadlog_cluster", command)
    with ExitStack() as stack:
        side.missing = kafka_is_missing() or redis_is_missing()
        try:
            if side.missing is None:
                broker = stack.enter_context(Broker())
                redis = stack.enter_context(RedisServer())
                side.env = {
                    "THREADLOG_KAFKA__BOOTSTRAP": broker.bootstrap,
                    "THREADLOG_KAFKA__PARTITIONS": str(PARTITIONS),
                    "THREADLOG_KAFKA__REPLICATION": "1",
                    "THREADLOG_REDIS__URL": redis.url,
                    "BENCH_PIDS": f"{broker.pid} {redis.pid}",
                }
        except ServerError as error:
            side.missing = str(error)
        yield side


def table(sides: Sequence[Side], other: Side | None) -> list[str]:
    """The lines of the table: median (lowest-highest) of each side, and the ratios to the peer."""
    ours = [side for side in sides if side is not other]
    head = "".join(f"{side.title:>32}" for side in sides)
    head += "".join(f"{side.title + ' / peer':>24}" for side in ours if other)
    lines = [f"{'':22}{head}"]
    for title, value, unit in ROWS:
        values = {side.name: _values(side, value) for side in sides}
        line = "".join(f"{_cell(values[side.name], unit, side):>32}" for side in sides)
        for side in ours if other else ():
            line += f"{_ratio(values[side.name], values[other.name] if other else []):>24}"
        lines.append(f"{title:22}{line}".rstrip())
    return lines


def _values(side: Side, value: Value) -> list[float]:
    return [found for measured in side.rounds if (found := value(measured)) is not None]


def _ratio(values: list[float], others: list[float]) -> str:
    if not values or not others:
        return ""
    return f"{statistics.median(values) / statistics.median(others):.2f}"


def _cell(values: list[float], unit: str, side: Side) -> str:
    if not values:
        return "-" if side.rounds else "not run"
    low, high = min(values), max(values)
    return f"{statistics.median(values):.2f} {unit} ({low:.1f}-{high:.1f})"


def profile(side: Side) -> list[str]:
    """Where the time of the cluster goes, with one client and under load."""
    if side.missing:
        return [f"{side.title} not run: {side.missing}"]
    traced, profiled = side.run("trace"), side.run("profile")
    lines = []
    for phase, turns in (("one_client", ONE_CLIENT_TURNS), ("in_flight", IN_FLIGHT * TURNS_EACH)):
        lines += [f"{phase}: the stretches of a turn", *breakdown(traced[phase])]
        lines += [f"{phase}: CPU ms a turn, by thread", *threads(traced[phase], turns)]
    lines.append("in_flight: CPU ms a turn of a function's own")
    return [*lines, *functions(profiled["in_flight"], IN_FLIGHT * TURNS_EACH)]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each side (3)")
    parser.add_argument("--no-peer", action="store_true", help="ours alone")
    parser.add_argument("--profile", action="store_true", help="where the cluster's time goes")
    options = parser.parse_args()
    with cluster() as services:
        if options.profile:
            print("\n".join(profile(services)))
            return
        embedded = Side("embedded", "threadlog", [sys.executable, "-m", "tests.bench.ours"])
        other = None if options.no_peer else peer()
        sides = [embedded, services, *([other] if other else [])]
        for n in range(options.rounds):
            print(f"round {n + 1} of {options.rounds}", file=sys.stderr)
            for side in sides:
                if side.missing is None:
                    side.rounds.append(side.run())
    print("\n".join(table(sides, other)))
    for side in sides:
        if side.missing:
            print(f"{side.title} not run: {side.missing}")
    results = {"workload": "turn", **{side.name: side.rounds for side in sides}}
    (ROOT / "bench-results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
