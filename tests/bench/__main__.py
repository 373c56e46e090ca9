"""`make bench`: the workload `turn`, ours and the peer's in turn, in one run; ratios of medians.

Absolute figures hold for this machine at this hour; the ratio is the claim. Prints a table and
writes `bench-results.json`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PEERS = ROOT / ".venv-peers"
ROWS = (
    ("turn p50, 1 client", "p50_ms", "ms"),
    ("turn p99, 1 client", "p99_ms", "ms"),
    ("turns/s, 64 threads", "turns_per_s", "1/s"),
    ("CPU a turn, 64 threads", "cpu_ms", "ms"),
)


def peer_python() -> Path | str:
    """The interpreter that has the peer, installed now if need be; or why there is none."""
    python = PEERS / "bin" / "python"
    stamp = PEERS / "installed"
    lock = (HERE / "peers.lock").read_text()
    if stamp.exists() and stamp.read_text() == lock:
        return python
    try:
        venv.create(PEERS, with_pip=True, clear=True)
        install = ["-m", "pip", "install", "--quiet", "--require-hashes", "-r"]
        subprocess.run([python, *install, HERE / "peers.lock"], check=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        return f"cannot install it: {error}"
    stamp.write_text(lock)
    return python


def one_round(python: Path | str, module: str) -> dict[str, float]:
    """One round of a side, in a process of its own, on a file of its own."""
    with tempfile.TemporaryDirectory(prefix="threadlog-bench-") as folder:
        done = subprocess.run(
            [python, "-m", f"tests.bench.{module}", folder],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        )
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def table(ours: list[dict[str, float]], peer: list[dict[str, float]]) -> list[str]:
    """The lines of the table: median (lowest-highest) of each side, and the ratio."""
    lines = [f"{'':24} {'threadlog':>26} {'langgraph sqlite':>26} {'ratio':>8}"]
    for title, name, unit in ROWS:
        cells = [_cell([r[name] for r in side], unit) for side in (ours, peer)]
        ratio = ""
        if peer:
            median = statistics.median(r[name] for r in ours)
            ratio = f"{median / statistics.median(r[name] for r in peer):.2f}"
        lines.append(f"{title:24} {cells[0]:>26} {cells[1]:>26} {ratio:>8}")
    return lines


def _cell(values: list[float], unit: str) -> str:
    if not values:
        return "not run"
    low, high = min(values), max(values)
    return f"{statistics.median(values):.2f} {unit} ({low:.1f}-{high:.1f})"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each side (3)")
    parser.add_argument("--no-peer", action="store_true", help="ours alone")
    options = parser.parse_args()
    python = "left out by --no-peer" if options.no_peer else peer_python()
    ours: list[dict[str, float]] = []
    peer: list[dict[str, float]] = []
    for n in range(options.rounds):
        print(f"round {n + 1} of {options.rounds}", file=sys.stderr)
        ours.append(one_round(sys.executable, "ours"))
        if isinstance(python, Path):
            peer.append(one_round(python, "langgraph_peer"))
    print("\n".join(table(ours, peer)))
    if isinstance(python, str):
        print(f"peer not run: {python}")
    results = {"workload": "turn", "threadlog": ours, "langgraph_sqlite": peer}
    (ROOT / "bench-results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
