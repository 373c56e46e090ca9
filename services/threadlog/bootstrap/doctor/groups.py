"""The workers, as the broker knows them: who is in each group, who lives, and what waits.

Which version a member has is not in its name, so two versions in one group cannot be seen here.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from threadlog.adapters.kafka.inspection import GroupSeen, Inspection
from threadlog.bootstrap.doctor.facts import Facts
from threadlog.bootstrap.doctor.report import off_loop
from threadlog.limits import DOCTOR_PROGRESS_MS
from threadlog.ports.tools import Finding

SERVICES = ("planner", "tool-runner", "projection")
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Looked:
    """One look at a service's groups. `waiting`: records that are not committed."""

    group: GroupSeen
    alive: GroupSeen
    committed: dict[int, int]
    waiting: int


async def group(facts: Facts, service: str) -> Sequence[Finding]:
    """Whether somebody works for this service, is known to live, and gets on."""
    inspection = (await facts.broker()).inspection
    bounds = await facts.bounds()
    name = f"{facts.settings.kafka.prefix}.{service}"

    async def look() -> Looked:
        return await off_loop(lambda: _look(inspection, name, bounds.ends))

    first = await look()
    if not first.group.members:
        return _deserted(service, first, sum(bounds.ends.values()))
    # Who joins or leaves right now is in one list a moment before the other: looked at twice.
    has_doubt = first.waiting or set(first.group.members) - set(first.alive.members)
    if not has_doubt and first.group.state == "Stable":
        return [_working(service, first)]
    await asyncio.sleep(DOCTOR_PROGRESS_MS / 1_000)
    return _after(service, first, await look())


def _look(inspection: Inspection, name: str, ends: dict[int, int]) -> Looked:
    members, alive = inspection.group(name), inspection.group(f"{name}.alive")
    # Of a group that is not there nothing is kept, and asking would make the broker seek it.
    committed = inspection.committed(name, len(ends)) if members.state else {}
    waiting = sum(max(0, end - committed.get(partition, 0)) for partition, end in ends.items())
    return Looked(members, alive, committed, waiting)


def _deserted(service: str, looked: Looked, records: int) -> list[Finding]:
    fix = f"start it: `threadlog serve {service}`; what it says on stderr tells why it ended"
    if records and not looked.committed:
        evidence = (
            f"no {service} runs, and nothing is committed for {records} records: it never ran, "
            "or the broker has forgotten its commits"
        )
        return [Finding("fail", service, evidence, f"{fix}; no record is lost by that")]
    if looked.waiting:
        evidence = f"no {service} runs, and {looked.waiting} records wait for one"
        return [Finding("fail", service, evidence, fix)]
    return [Finding("warn", service, f"no {service} runs; nothing waits for one", fix)]


def _after(service: str, first: Looked, second: Looked) -> list[Finding]:
    """What is still wrong at the second look."""
    found = []
    if not second.group.members:
        return [Finding("warn", service, f"the last {service} has just left", "run it again")]
    both = set(first.group.members) & set(second.group.members)
    dead = sorted(both - set(first.alive.members) - set(second.alive.members))
    if dead:
        evidence = f"{_some(dead)} has partitions, but is not among the living"
        fix = "restart it: others take it for dead, and settle what it has claimed"
        found.append(Finding("fail", service, evidence, fix))
    if second.waiting and second.committed == first.committed and first.waiting:
        evidence = (
            f"{second.waiting} records wait, and {_some(sorted(both))} did not get on in "
            f"{DOCTOR_PROGRESS_MS / 1_000:.1f} s"
        )
        fix = (
            "look at its /readyz, its metrics and its log; restart it if it stays so, and see "
            "whether the views follow: a worker waits for them when it starts"
        )
        found.append(Finding("warn", service, evidence, fix))
    if second.group.state != "Stable":
        evidence = f"its group is in state {second.group.state}: partitions change hands"
        fix = "run it again; if it stays so, a member joins and leaves: look at restarts of pods"
        found.append(Finding("warn", service, evidence, fix))
    return found or [_working(service, second)]


def _working(service: str, looked: Looked) -> Finding:
    count = len(looked.group.members)
    return Finding("ok", service, f"{count} in its group, {looked.waiting} records behind")


def _some(members: Sequence[str]) -> str:
    more = f" and {len(members) - _NAMED} more" if len(members) > _NAMED else ""
    return ", ".join(members[:_NAMED]) + more
