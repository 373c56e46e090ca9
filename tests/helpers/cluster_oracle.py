"""The oracle of fault tests on a cluster: what must hold of log, views and the world outside.

`findings` is pure: evidence in, sentences out, none when all is well. It is itself tested with one
planted fault for each of its rules (`tests/fault/test_cluster_oracle.py`).

Source: KAFKA.md 10, PROTOCOL "What must hold", RELIABILITY I1 to I4, I7, I8; DESIGN laws 1 to 5, 9.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.helpers.cluster_log import LogTold, Told
from threadlog.commands.requests import Accepted
from threadlog.events.codec import to_cloud_event
from threadlog.events.envelope import Event
from threadlog.events.step import StepReleased, StepStarted
from threadlog.events.tool import ToolFinished, ToolReleased, ToolRequested, ToolStarted
from threadlog.events.turn import TurnFinished
from threadlog.ids import CallId, EventId, Partition, Position, WorkerId
from threadlog.ports.views import (
    StoredEvent,
    ThreadRow,
)
from threadlog.projection.rows import thread_row
from threadlog.thread.snapshot import encode_state, state_hash

SHOWN_MAX = 12


@dataclass(frozen=True, slots=True)
class Viewed:
    """What the views say of one thread.

    Shapes:  `state_sha256`: of the state that a service would load now. `snapshot`: position and
             hash of the newest stored one. `row` None: the views know no such thread.
    """

    row: ThreadRow | None
    events: Sequence[StoredEvent]
    voids: Sequence[StoredEvent]
    state_sha256: str
    snapshot: tuple[Position, str] | None = None


@dataclass(slots=True)
class Evidence:
    """Everything that is known after a run.

    Shapes:  `effects`: the lines that commands left outside, `CALL ATTEMPT PID`; a command that
             names `marker` leaves one. `asked`: sha256 of
             every request that the model server got; None: the model was not outside. `innocent`:
             workers that were never killed, nor frozen for longer than their membership.
    """

    log: LogTold
    sent: Sequence[Accepted] = ()
    effects: Sequence[str] = ()
    marker: str = "effects"
    asked: Sequence[str] | None = None
    innocent: frozenset[WorkerId] = frozenset()
    watermarks: Mapping[Partition, Position] = field(default_factory=dict)
    committed: Mapping[tuple[str, Partition], Position | None] = field(default_factory=dict)
    views: Mapping[str, Viewed] | None = None


def findings(evidence: Evidence) -> list[str]:
    """What does not hold, one sentence each, the rule's name first."""
    return [f"{rule.__name__.strip('_')}: {text}" for rule in RULES for text in rule(evidence)]


# -- the log


def _history(evidence: Evidence) -> Iterator[str]:
    """One outcome a call, no id twice, no open call at an edge, causes, admissions, seqs."""
    for key, told in evidence.log.threads.items():
        for text in told.broken:
            yield f"thread {key}: {text}"


def _inputs(evidence: Evidence) -> Iterator[str]:
    """Every acknowledged input is accepted, once, where its receipt says, in the order sent."""
    places: dict[EventId, list[tuple[Position, int | None]]] = {}
    for entry in evidence.log.accepted:
        found = places.setdefault(entry.event.event_id, [])
        found.append((entry.position, entry.judgement.seq))
    last: dict[str, int] = {}
    for sent in evidence.sent:
        found = places.get(sent.event_id, [])
        if found != [(sent.position, sent.seq)]:
            told = f"told {sent.position}, seq {sent.seq}; the log has {found}"
            yield f"input {sent.event_id} of {sent.thread_id}: {told}"
        if sent.seq <= last.get(sent.thread_id, -1):
            yield f"input {sent.event_id} of {sent.thread_id}: before one that was sent earlier"
        last[sent.thread_id] = sent.seq


def _ends(evidence: Evidence) -> Iterator[str]:
    """Every turn has ended, and every message was taken by one."""
    for key, told in evidence.log.threads.items():
        if not told.is_at_rest:
            last = told.entries[-1].event.type
            yield f"thread {key} is not at rest; its last record is {last}"


# -- the world outside


@dataclass(slots=True)
class _Attempts:
    """What the log says of attempts, each by `CALL ATTEMPT`. `marked`: calls that leave a line."""

    claimed: set[str] = field(default_factory=set)
    released: set[str] = field(default_factory=set)
    ok: dict[str, CallId] = field(default_factory=dict)
    marked: set[str] = field(default_factory=set)

    def add(self, event: Event, marker: str) -> None:
        match event.body:
            case ToolRequested(command=str(command)) if marker in command:
                self.marked.add(event.event_id)
            case ToolStarted(call_id=call, attempt=attempt):
                self.claimed.add(f"{call} {attempt}")
            case ToolReleased(call_id=call, attempt=attempt, by="writer"):
                self.released.add(f"{call} {attempt}")
            case ToolFinished(call_id=call, attempt=attempt, outcome="ok"):
                self.ok[f"{call} {attempt}"] = call
            case _:
                pass


def _effects(evidence: Evidence) -> Iterator[str]:
    """An attempt starts at most once, from an accepted claim that was not released by its writer.

    And whatever has an outcome of its own did start.
    """
    attempts = _Attempts()
    for entry in evidence.log.accepted:
        attempts.add(entry.event, evidence.marker)
    started = Counter(line.rpartition(" ")[0] for line in evidence.effects)
    for attempt, times in started.items():
        if times > 1:
            yield f"attempt {attempt} started {times} times"
        if attempt not in attempts.claimed:
            yield f"attempt {attempt} started without an accepted claim"
        elif attempt in attempts.released:
            yield f"attempt {attempt} started and was released"
    for attempt, call in attempts.ok.items():
        if call in attempts.marked and not started[attempt]:
            yield f"attempt {attempt} is ok and never started"


def _requests(evidence: Evidence) -> Iterator[str]:
    """The model was asked at most once for each claim, and for every response."""
    if evidence.asked is None:
        return
    claimed: Counter[str] = Counter()
    wanted: dict[EventId, str] = {}
    answered: list[EventId] = []
    for entry in evidence.log.accepted:
        body = entry.event.body
        if isinstance(body, StepStarted):
            claimed[body.manifest.request_sha256] += 1
            wanted[entry.event.event_id] = body.manifest.request_sha256
        elif entry.event.type == "model.responded" and entry.event.caused_by is not None:
            answered.append(entry.event.caused_by)
    asked = Counter(evidence.asked)
    for sha256, times in asked.items():
        if times > claimed[sha256]:
            yield f"request {sha256[:12]} was sent {times} times for {claimed[sha256]} claims"
    for claim in answered:
        if not asked[wanted[claim]]:
            yield f"step claim {claim} was answered and never asked"


def _settlements(evidence: Evidence) -> Iterator[str]:
    """Nobody settles the claim of a worker that lives; `unknown` needs a death."""
    writers: dict[EventId, WorkerId | None] = {}
    for entry in evidence.log.accepted:
        body, event = entry.event.body, entry.event
        match body:
            case ToolStarted() | StepStarted():
                writers[event.event_id] = event.worker
            case (
                ToolReleased(by="settlement", claim=claim)
                | StepReleased(by="settlement", claim=claim)
                | ToolFinished(by="settlement", claim=str(claim))
            ):
                if (writer := writers.get(claim)) in evidence.innocent or writer is None:
                    yield f"{event.type} {event.event_id} settles a claim of {writer}, who lived"
            case ToolFinished(outcome="unknown") as body:
                yield f"call {body.call_id} is unknown by its own writer: {body.reason}"
            case _:
                pass


# -- the views


def _watermarks(evidence: Evidence) -> Iterator[str]:
    """The views have passed every record; nobody has committed what is not there."""
    for partition, end in evidence.log.ends.items():
        if evidence.views is not None and (at := evidence.watermarks.get(partition)) != end:
            yield f"partition {partition}: the views are at {at}, the log ends at {end}"
    for (group, partition), place in evidence.committed.items():
        if place is not None and place > (end := evidence.log.ends[partition]):
            yield f"group {group} committed {place} in {partition}, which ends at {end}"


def _views(evidence: Evidence) -> Iterator[str]:
    """What readers see is the fold of the log, byte for byte."""
    if evidence.views is None:
        return
    for key, told in evidence.log.threads.items():
        viewed = evidence.views.get(key)
        if viewed is None:
            yield f"thread {key} was not looked at"
            continue
        for text in _differences(told, viewed):
            yield f"thread {key}: {text}"


def _differences(told: Told, viewed: Viewed) -> Iterator[str]:
    if viewed.state_sha256 != told.hash:
        yield f"a service would load {viewed.state_sha256[:12]}, the fold is {told.hash[:12]}"
    if viewed.snapshot is not None:
        at, sha256 = viewed.snapshot
        states = {e.position: e.judgement.state for e in told.entries}
        if at not in states or state_hash(encode_state(states[at])) != sha256:
            yield f"the snapshot at {at} is not the fold up to there"
    seen = [(s.position, s.seq, _bytes(s.event, s.seq)) for s in viewed.events]
    wanted = [
        (e.position, e.judgement.seq, _bytes(e.event, e.judgement.seq)) for e in told.accepted
    ]
    if seen != wanted:
        both = enumerate(zip(seen, wanted, strict=False))
        first = next((n for n, (one, other) in both if one != other), None)
        yield f"{len(seen)} events are seen, {len(wanted)} accepted; first difference: {first}"
    seen_voids = [(s.position, s.void, _bytes(s.event, None)) for s in viewed.voids]
    void = [(e.position, e.judgement.void, _bytes(e.event, None)) for e in told.voids]
    if seen_voids != void:
        yield f"voids are seen at {[s[0] for s in seen_voids]}, they are at {[v[0] for v in void]}"
    yield from _row_differences(told, viewed.row)


def _row_differences(told: Told, row: ThreadRow | None) -> Iterator[str]:
    """A row's position may be that of any record from the last accepted one on."""
    if not told.accepted:
        if row is not None and told.state.halted is None:
            yield "a row is seen of a thread without an accepted event"
        return
    last = told.entries[-1].position
    wanted = thread_row(told.state, last, told.title, told.created_at, told.updated_at)
    if row is None:
        yield "no row is seen"
    elif replace(row, position=last) != wanted:
        yield f"the row is {row}, it should be {wanted}"
    elif not told.accepted[-1].position <= row.position <= last:
        yield f"the row is of position {row.position}"


def _bytes(event: Event, seq: int | None) -> bytes:
    return to_cloud_event(event, seq)


RULES: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    _history,
    _inputs,
    _ends,
    _effects,
    _requests,
    _settlements,
    _watermarks,
    _views,
)


# -- what came of it, for people


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts of a run that was found right."""

    threads: int
    events: int
    voids: Counter[str]
    verdicts: Counter[str]
    outcomes: Counter[str]
    repeated: int
    released: int
    settled: int

    def __str__(self) -> str:
        turns = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.items())
        calls = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.items())
        return (
            f"{self.threads} threads, {self.events} events, {sum(self.voids.values())} void"
            f" {dict(self.voids)}; turns: {turns}; calls: {calls};"
            f" {self.repeated} attempts after the first, {self.released} releases,"
            f" {self.settled} settlements"
        )


def figures(log: LogTold) -> Figures:
    """What happened in this log."""
    verdicts: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    repeated = released = settled = 0
    for entry in log.accepted:
        body = entry.event.body
        match body:
            case TurnFinished():
                verdicts[body.verdict] += 1
            case ToolFinished():
                outcomes[body.outcome] += 1
                settled += body.by == "settlement"
            case ToolStarted() | StepStarted():
                repeated += body.attempt > 1
            case ToolReleased() | StepReleased():
                released += body.by == "writer"
                settled += body.by == "settlement"
            case _:
                pass
    events = sum(1 for _ in log.entries)
    voids = log.void_reasons()
    return Figures(len(log.threads), events, voids, verdicts, outcomes, repeated, released, settled)
