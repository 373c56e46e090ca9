"""The log of a cluster: its broker, its topics, and whether its beginning is still there."""

from collections.abc import Sequence

from threadlog.adapters.kafka.advice import advice
from threadlog.adapters.kafka.topics import APPLY_COMMAND, Change, TopicsWanted
from threadlog.bootstrap.doctor.facts import Facts
from threadlog.bootstrap.doctor.report import UnmetError
from threadlog.errors import RefusedError
from threadlog.limits import DOCTOR_KEPT_MINUTES_MIN
from threadlog.ports.tools import Finding

_WARNINGS = {"replication", "min.insync.replicas", "message.timestamp.type"}
"""What a service runs with, and an operator should know; any other difference is a failure."""


async def broker(facts: Facts) -> Sequence[Finding]:
    """Whether a broker answers, and lets us in."""
    reached = await facts.broker(is_owner=True)
    seen = reached.seen
    evidence = f"{facts.settings.kafka.bootstrap}, cluster {seen.cluster_id}, {seen.brokers} nodes"
    return [Finding("ok", "broker", evidence)]


async def topics(facts: Facts) -> Sequence[Finding]:
    """Every difference between the topics and what `topics apply` would make."""
    reached = await facts.broker()
    kafka = facts.settings.kafka
    changes = await reached.topics.plan(TopicsWanted(kafka.partitions, kafka.replication))
    if not changes:
        return [Finding("ok", "topics", "all are as they must be")]
    return [_difference(change) for change in changes]


def _difference(change: Change) -> Finding:
    found = "not there" if change.found is None else change.found
    evidence = f"{change.topic}: {change.name} is {found}, must be {change.wanted}"
    if change.name == "topic":
        evidence = f"{change.topic} is missing"
    is_warning = change.name in _WARNINGS
    fix = change.advice or f"run `{APPLY_COMMAND}`"
    return Finding("warn" if is_warning else "fail", change.name, evidence, fix)


async def beginning(facts: Facts) -> Sequence[Finding]:
    """Whether records were deleted from the beginning of the log."""
    try:
        bounds = await facts.bounds(is_owner=True)
    except RefusedError as error:
        if advice(error) is None:
            raise UnmetError("the events topic is missing") from error
        raise
    cut = {partition: offset for partition, offset in bounds.first.items() if offset > 0}
    records = sum(bounds.ends.values())
    topic = bounds.identity.topic
    if cut:
        partition, offset = next(iter(cut.items()))
        more = f" and {len(cut) - 1} more" if len(cut) > 1 else ""
        evidence = f"{topic}: partition {partition}{more} begins at offset {offset}"
        fix = (
            "restore the topic from a copy: threads would lack what was deleted, so nothing starts"
        )
        return [Finding("fail", "beginning", evidence, fix)]
    return [Finding("ok", "beginning", f"{topic} has all of its {records} records")]


async def commits_kept(facts: Facts) -> Sequence[Finding]:
    """Whether the broker forgets what a group has committed while nobody is in it."""
    minutes = (await facts.broker()).seen.keeps_minutes
    if minutes is None:
        return [Finding("ok", "offsets kept", "the broker does not say for how long")]
    evidence = f"commits of a group without members are forgotten after {_time(minutes)}"
    if minutes < DOCTOR_KEPT_MINUTES_MIN:
        fix = (
            f"set offsets.retention.minutes of the broker to {DOCTOR_KEPT_MINUTES_MIN} or more: "
            "no record is lost without them, but lag and what scales by it are wrong until a "
            "worker commits again"
        )
        return [Finding("warn", "offsets kept", evidence, fix)]
    return [Finding("ok", "offsets kept", evidence)]


def _time(minutes: int) -> str:
    hours, rest = divmod(minutes, 60)
    return f"{minutes} min" if rest or hours == 0 else f"{hours} h"
