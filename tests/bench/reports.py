"""What a watched run shows: where the milliseconds of a turn go, and who uses the CPU."""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Stretch = tuple[str, str, float]
"""What a turn waits for, what that is a part of, milliseconds."""
_TOP = 12


@dataclass(slots=True)
class Append:
    """One append: who made it, what it holds, when it began and was acknowledged."""

    service: str
    ids: list[str]
    kinds: str
    began: float
    acknowledged: float = 0.0


@dataclass(slots=True)
class Seen:
    """When events passed the places, by service, place and event; the appends of each thread."""

    at: dict[tuple[str, str, str], float] = field(default_factory=dict)
    appends: dict[str, list[Append]] = field(default_factory=lambda: defaultdict(list))
    threads: dict[str, str] = field(default_factory=dict)
    """By the key that the client made it with."""


def seen(reports: Mapping[str, Any]) -> Seen:
    """All that the processes noted, put together."""
    found = Seen()
    for service, report in reports.items():
        open_appends: dict[str, Append] = {}
        for place, at, passed in report["places"]:
            if place == "appending":
                *ids, kinds, thread, key = passed
                append = open_appends[ids[-1]] = Append(service, ids, kinds, at)
                found.appends[thread].append(append)
                if key:
                    found.threads[key] = thread
            elif place == "acknowledged":
                open_appends[passed[-1]].acknowledged = at
            else:
                for name in passed:
                    found.at.setdefault((service, place, name), at)
    return found


def stretches(found: Seen, key: str) -> Iterator[Stretch]:
    """The turn from the client's call to its result, without gap: each append causes the next."""
    appends = sorted(found.appends[found.threads[key]], key=lambda append: append.began)
    at = found.at
    began = at["client", "began", key]
    yield "client", "call to append", appends[0].began - began
    for before, append in pairwise(appends):
        name = f"{append.service}: {append.kinds}"
        decoded = at[append.service, "decoded", before.ids[-1]]
        taken = at[append.service, "taken", before.ids[-1]]
        yield name, "broker, to decoded", decoded - before.began
        yield name, "to the loop", taken - decoded
        late = before.acknowledged - taken if before.service == append.service else 0.0
        yield name, "acknowledged later", max(late, 0.0)
        yield name, "fold, plan, effect", append.began - taken - max(late, 0.0)
    last = appends[-1]
    places = [at["projection", place, last.ids[-1]] for place in ("decoded", "taken")]
    places += [at["projection", place, last.ids[-1]] for place in ("applying", "applied")]
    names = ("broker, to decoded", "to the loop", "fold, gather", "apply in Redis")
    times = [last.began, *places]
    for name, before_s, after_s in zip(names, times, places, strict=False):
        yield "projection: the end", name, after_s - before_s
    yield "client", "applied to result", at["client", "finished", key] - places[-1]


def accepting(found: Seen, key: str) -> Iterator[Stretch]:
    """The part until the client knows that its message was accepted, beside the turn."""
    first = min(found.appends[found.threads[key]], key=lambda append: append.began)
    at, name = found.at, first.ids[-1]
    decoded, taken, applying, applied = (
        at["projection", place, name] for place in ("decoded", "taken", "applying", "applied")
    )
    yield "beside: accepted", "append acknowledged", first.acknowledged - first.began
    yield "beside: accepted", "broker, to decoded", decoded - first.began
    yield "beside: accepted", "to the loop", taken - decoded
    yield "beside: accepted", "fold, gather", applying - taken
    yield "beside: accepted", "apply in Redis", applied - applying
    yield "beside: accepted", "applied to accepted", at["client", "accepted", key] - applied


def breakdown(reports: Mapping[str, Any]) -> list[str]:
    """Median milliseconds of each stretch of a turn, and the sum over the turn by kind."""
    found = seen(reports)
    turns: dict[tuple[str, str], list[float]] = defaultdict(list)
    kinds: dict[str, list[float]] = defaultdict(list)
    hops = []
    for key, thread in found.threads.items():
        sums: dict[str, float] = defaultdict(float)
        for name, what, seconds in stretches(found, key):
            turns[name, what].append(seconds * 1e3)
            sums[what] += seconds * 1e3
            sums["whole turn"] += seconds * 1e3
        for name, what, seconds in accepting(found, key):
            turns[name, what].append(seconds * 1e3)
        for what, ms in sums.items():
            kinds[what].append(ms)
        hops.append(len(found.appends[thread]))
    lines = [f"  {len(hops)} turns, {statistics.median(hops):.0f} hops each; medians, ms"]
    former = ""
    for (name, what), values in turns.items():
        if name != former:
            lines.append(f"  {name}")
        former = name
        lines.append(f"      {what:24} {statistics.median(values):8.2f}")
    lines.append("  the turn, by kind")
    order = sorted(kinds.items(), key=lambda kind: -statistics.median(kind[1]))
    lines += [f"      {what:24} {statistics.median(values):8.2f}" for what, values in order]
    return lines


def threads(reports: Mapping[str, Any], turns: int) -> list[str]:
    """CPU milliseconds a turn, by process and thread."""
    lines = []
    for service, report in reports.items():
        each = {name: ms / turns for name, ms in report["threads"].items()}
        named = ", ".join(f"{name} {ms:.2f}" for name, ms in each.items() if ms >= 0.05)
        lines.append(f"  {service:12} {sum(each.values()):6.2f}   {named}")
    return lines


def functions(reports: Mapping[str, Any], turns: int) -> list[str]:
    """The functions with the most CPU time of their own, by process."""
    lines = []
    for service, report in reports.items():
        used = report["functions"]
        total = sum(used.values())
        lines.append(f"  {service}: {total / turns:.2f} ms CPU a turn, watching included")
        folders: dict[str, float] = defaultdict(float)
        for name, ms in used.items():
            folders[name.partition("/")[0] if "/" in name else "built in"] += ms
        shares = sorted(folders.items(), key=lambda each: -each[1])[:_TOP]
        lines.append("      " + ", ".join(f"{n} {ms / total:.0%}" for n, ms in shares))
        for name, ms in list(used.items())[: 2 * _TOP]:
            lines.append(f"      {ms / turns:6.3f}  {ms / total:5.1%}  {name}")
    return lines
