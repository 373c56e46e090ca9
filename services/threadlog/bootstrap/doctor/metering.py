"""Metering: whether somebody counts, and gets on. What is kept of it lies in its table's topic."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from threadlog.adapters.kafka.metering import MeteringTopics
from threadlog.bootstrap.doctor.facts import Facts
from threadlog.bootstrap.doctor.report import UnmetError, off_loop
from threadlog.bootstrap.kafka import kafka_config
from threadlog.errors import RefusedError
from threadlog.ids import draw
from threadlog.limits import DOCTOR_PROGRESS_MS
from threadlog.metering.ledger import Ledger
from threadlog.ports.tools import Finding

NAME = "metering"
_START = "start it: `threadlog serve metering`; what it says on stderr tells why it ended"
_STUCK = (
    "look at its metrics and its log; restart it if it stays so: it goes on from what it has kept"
)


@dataclass(frozen=True, slots=True)
class Looked:
    """One look. `waiting`: usage records that are not counted; `following`: where it goes on."""

    members: int
    following: tuple[int, ...]
    waiting: int


async def metering(facts: Facts) -> Sequence[Finding]:
    """Whether usage is counted."""
    reached, bounds = await facts.broker(), await facts.bounds()
    try:
        usage_id = await reached.topics.check_metering()
    except RefusedError as error:
        raise UnmetError("metering's topics are not as they must be") from error
    config = kafka_config(facts.settings, "cli", draw())
    topics = MeteringTopics(config)

    async def look() -> Looked:
        seen = await off_loop(lambda: reached.inspection.group(config.metering_group))
        ledger = Ledger(bounds.identity.topic_id, usage_id, "doctor")
        ledger.recover(await topics.table())
        ends = await topics.ends()
        following = tuple(ledger.next_of(partition) for partition in sorted(ends))
        waiting = sum(max(0, ends[n] - at) for n, at in enumerate(following))
        return Looked(len(seen.members), following, waiting)

    try:
        first = await look()
        if not first.waiting:
            return [_resting(first)]
        await asyncio.sleep(DOCTOR_PROGRESS_MS / 1_000)
        return [_judged(first, await look())]
    finally:
        await topics.close()


def _resting(looked: Looked) -> Finding:
    if not looked.members:
        return Finding("warn", NAME, "no metering runs; nothing waits for one", _START)
    return Finding("ok", NAME, f"{looked.members} in its group, nothing waits")


def _judged(first: Looked, second: Looked) -> Finding:
    if not second.members:
        evidence = f"no metering runs, and {second.waiting} usage records wait for one"
        return Finding("fail", NAME, evidence, f"{_START}; no usage is lost by that")
    if second.waiting and second.following == first.following:
        evidence = (
            f"{second.waiting} usage records wait, and {second.members} in its group did not get "
            f"on in {DOCTOR_PROGRESS_MS / 1_000:.1f} s"
        )
        return Finding("warn", NAME, evidence, _STUCK)
    return Finding("ok", NAME, f"{second.members} in its group, {second.waiting} records behind")
