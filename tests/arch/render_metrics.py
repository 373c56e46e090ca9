"""docs/metrics.md, from the table of metrics.

Run as `python tests/arch/render_metrics.py --write` or `--check`.
"""

import sys
from pathlib import Path
from typing import Final, Literal, get_args

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.arch.tree import ROOT
from threadlog.telemetry import labels, owners, table

TARGET = ROOT / "docs/metrics.md"

# What a label may say; a set that is not closed here comes from the configuration.
LABELS: Final[dict[str, str | object]] = {
    "service": table.Service,
    "source": table.Service,
    "type": "a type of event that this version knows, or `other`",
    "outcome": "of records, streams, turns, model requests and calls, below",
    "route": "the template of a path, or `unmatched`",
    "method": "of HTTP, or `other`",
    "code": "of HTTP",
    "surface": "`http`",
    "kind": "of frames (`delta`) and of tokens, below",
    "provider": "a provider that this version knows, or `other`",
    "model": "a model that the settings name, in any place, or `other`",
    "command": labels.Command,
    "setting": labels.TopicSetting,
    "client": labels.Client,
    "limit": "`requests`, `streams` or `bytes`",
    "result": "of claims and of snapshots, below",
    "reason": "of appends, dead letters and streams, below",
    "tenant": "one of a bounded number of tenants, or `other`",
    "group": "a consumer group, `<prefix>.planner`",
    "topic": "a topic, `<prefix>.events`",
    "partition": "the number of a partition",
    "hop": labels.Hop,
    "where": table.MismatchPlace,
    "dependency": table.Dependency,
    "version": "of Threadlog",
    "revision": "the commit that it was built from, or empty",
    "event_schema": "digest of the types and versions of events that it knows",
    "fold_version": "of the fold; two of them in one cluster fold differently",
}
SETS: Final[dict[str, object]] = {
    "`threadlog_events_processed_total`, `outcome`": table.Outcome,
    "`threadlog_stream_resumes_total`, `outcome`": table.ResumeOutcome,
    "`threadlog_stream_closed_total`, `reason`": table.StreamEnd,
    "`threadlog_claims_total`, `result`": table.ClaimResult,
    "`threadlog_turn_duration_seconds`, `outcome`": labels.TurnOutcome,
    "`threadlog_model_attempts_total`, `outcome`": Literal[labels.ATTEMPT_OUTCOMES],
    "`threadlog_model_tokens_total`, `kind`": labels.TokenKind,
    "`threadlog_tool_calls_total`, `outcome`": labels.ToolOutcome,
    "`threadlog_snapshot_reads_total`, `result`": table.SnapshotResult,
    "`threadlog_event_append_errors_total`, `reason`": table.AppendFailure,
    "`threadlog_dead_letters_total`, `reason`": table.DeadLetterReason,
}

HEADER = """# Metrics

Written by `tests/arch/render_metrics.py` from `services/threadlog/telemetry/table.py`; do not edit.

A service of a cluster serves them as Prometheus text at `/metrics` of a port of its own, beside
`/healthz` and `/readyz`. Base units; counters end in `_total`. No label ever holds the id of a
thread, event or user, or free text. Histograms have one of two sets of bounds, in seconds: short,
{short}; long, {long}.

A process shows what its service shows, and nothing else. `threadlog up` shows them all, but for
what is of Kafka, when `THREADLOG_METRICS__PORT` is set. Who accepts OpenMetrics is given that, with
exemplars. `threadlog_turn_duration_seconds` and the hops from one event to another compare times
that are in the events: of two machines, where a hop has two writers.

| metric | kind | labels | shown by | what it says |
|---|---|---|---|---|
"""


def render() -> str:
    """The text of docs/metrics.md as it must be now."""
    lines = []
    for name, row in table.ROWS.items():
        kind: str = row.kind
        if row.kind == "histogram":
            kind += ", short" if row.buckets is table.SHORT_S else ", long"
        named = ", ".join(f"`{label}`" for label in row.labels)
        shown = owners.owners(name)
        by = "any" if shown == get_args(table.Service) else ", ".join(shown)
        lines.append(f"| `{name}` | {kind} | {named} | {by} | {row.text} |")
    lines += ["", "| label | values |", "|---|---|"]
    lines += [f"| `{label}` | {said(values)} |" for label, values in LABELS.items()]
    lines += ["", "| label of | values |", "|---|---|"]
    lines += [f"| {label} | {said(values)} `other` |" for label, values in SETS.items()]
    lines += ["", "Not there yet, for want of a source:", ""]
    lines += [f"- {names}: {why}" for names, why in owners.LATER.items()]
    bounds = {"short": table.SHORT_S, "long": table.LONG_S}
    header = {name: f"{each[0]:g} to {each[-1]:g}" for name, each in bounds.items()}
    return HEADER.format(**header) + "\n".join(lines) + "\n"


def said(values: str | object) -> str:
    """The members of a closed set, or the sentence as it is."""
    if isinstance(values, str):
        return values
    return " ".join(f"`{value}`" for value in get_args(values))


def main(arguments: list[str]) -> int:
    """Writes the document, or says whether it is stale."""
    match arguments:
        case ["--write"]:
            TARGET.write_text(render())
            return 0
        case ["--check"]:
            is_current = TARGET.exists() and TARGET.read_text() == render()
            if not is_current:
                print("docs/metrics.md is stale: render_metrics.py --write", file=sys.stderr)
            return not is_current
        case _:
            print("usage: render_metrics.py --write|--check", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
