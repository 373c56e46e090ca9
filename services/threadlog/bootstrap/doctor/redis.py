"""Redis, and the views in it: of this log, of this fold, and how far behind."""

from collections.abc import Sequence

from threadlog.adapters.redis.connect import VERSION_MIN
from threadlog.adapters.redis.inspection import RedisSeen, time_ms, watermarks
from threadlog.bootstrap.doctor.facts import Bounds, Facts
from threadlog.bootstrap.doctor.report import off_loop
from threadlog.errors import CorruptError
from threadlog.ids import NO_POSITION, Partition
from threadlog.limits import (
    DOCTOR_LAG_FAIL_MS,
    DOCTOR_LAG_WARN_MS,
    DOCTOR_REDIS_MEMORY_PERCENT,
    DOCTOR_SKEW_MS,
    MIB,
)
from threadlog.ports.tools import Finding

_FULL_PERCENT = 100
_SECONDS_MAX = 600
"""Longer times are told in minutes."""
_RUNNING = "see that a projection runs (`threadlog serve projection`), and what it says"


async def server(facts: Facts) -> Sequence[Finding]:
    """Whether Redis answers, is new enough, drops nothing, takes writes and has memory left."""
    client, seen = await facts.redis(is_owner=True)
    found = [Finding("ok", "server", f"{client.address}, version {seen.version}")]
    if seen.is_too_old:
        wanted = ".".join(map(str, VERSION_MIN))
        evidence = f"{client.address} is version {seen.version}"
        found = [Finding("fail", "server", evidence, f"upgrade it to {wanted} or newer")]
    if seen.is_replica:
        fix = "set THREADLOG_REDIS__URL to the primary"
        found.append(Finding("fail", "role", "it is a replica, which takes no writes", fix))
    return [*found, _policy(seen), _memory(seen)]


def _policy(seen: RedisSeen) -> Finding:
    evidence = f"maxmemory-policy {seen.policy}"
    if seen.policy == "noeviction":
        return Finding("ok", "eviction", evidence)
    fix = (
        "run `CONFIG SET maxmemory-policy noeviction`, and put it into redis.conf: a dropped key "
        "is a hole in a thread"
    )
    return Finding("fail", "eviction", f"{evidence}: it drops keys when it is full", fix)


def _memory(seen: RedisSeen) -> Finding:
    used = f"{seen.memory_bytes // MIB} MiB used"
    if seen.memory_max is None:
        return Finding("ok", "memory", f"{used}, no limit")
    percent = 100 * seen.memory_bytes // seen.memory_max
    evidence = f"{used} of {seen.memory_max // MIB} MiB: {percent} %"
    if percent < DOCTOR_REDIS_MEMORY_PERCENT:
        return Finding("ok", "memory", evidence)
    fix = "raise maxmemory: a full Redis takes no more views, and threads stand still"
    return Finding("fail" if percent >= _FULL_PERCENT else "warn", "memory", evidence, fix)


async def views(facts: Facts) -> Sequence[Finding]:
    """Whether the views were made from this log, by this fold, and how far they are behind."""
    bounds = await facts.bounds()
    client, _ = await facts.redis()
    reached, wrong = await watermarks(client, bounds.identity)
    if wrong:
        is_other = isinstance(wrong[0], CorruptError)
        name = "origin" if is_other else "version"
        evidence, _, fix = str(wrong[0]).partition(". To ")
        same = fix or "upgrade threadlog, or drop the views as docs/operating.md says"
        return [Finding("fail", name, evidence, same)]
    behind = {
        partition: end - reached.get(Partition(partition), NO_POSITION)
        for partition, end in bounds.ends.items()
        if end > reached.get(Partition(partition), NO_POSITION)
    }
    if not behind:
        return [Finding("ok", "freshness", f"all {sum(bounds.ends.values())} records are in them")]
    return [await _lag(facts, bounds, behind, is_lost=not reached)]


async def _lag(facts: Facts, bounds: Bounds, behind: dict[int, int], *, is_lost: bool) -> Finding:
    """How far behind they are, in records and in the age of the oldest one."""
    if is_lost:
        evidence = f"there are none, though the log has {sum(behind.values())} records"
        return Finding("fail", "freshness", evidence, f"{_RUNNING}: it makes them again")
    inspection = (await facts.broker()).inspection
    # The partition that lacks most stands for all: asking each would take too long.
    partition, count = max(behind.items(), key=lambda item: item[1])
    at = bounds.ends[partition] - count
    appended_ms = await off_loop(lambda: inspection.appended_ms(partition, at))
    age_ms = 0 if appended_ms is None else max(0, facts.clock.now_ms() - appended_ms)
    evidence = f"{sum(behind.values())} records behind, the oldest for {_time(age_ms)}"
    if age_ms < DOCTOR_LAG_WARN_MS:
        return Finding("ok", "freshness", evidence)
    is_long = age_ms >= DOCTOR_LAG_FAIL_MS
    return Finding("fail" if is_long else "warn", "freshness", evidence, _RUNNING)


async def skew(facts: Facts) -> Sequence[Finding]:
    """Whether the clock of Redis and ours agree."""
    client, _ = await facts.redis()
    began_ms = facts.clock.now_ms()
    there_ms = await time_ms(client)
    off_ms = there_ms - (began_ms + facts.clock.now_ms()) // 2
    evidence = (
        f"Redis is {_time(abs(off_ms))} {'ahead of' if off_ms > 0 else 'behind'} this machine"
    )
    if abs(off_ms) <= DOCTOR_SKEW_MS:
        return [Finding("ok", "redis clock", "Redis and this machine agree")]
    fix = "let both follow a time server: retries, expiries of keys and shown times go by clocks"
    return [Finding("warn", "redis clock", evidence, fix)]


def _time(ms: int) -> str:
    seconds = ms // 1_000
    return f"{seconds} s" if seconds < _SECONDS_MAX else f"{seconds // 60} min"
