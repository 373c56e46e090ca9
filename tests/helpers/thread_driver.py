"""A random life of one thread: users, two planners, two tool-runners, and a broker with faults.

Appends get lost, come late, come twice; workers are killed and freeze; views lag. After `calm` the
faults end, and the thread must come to rest. A seed says everything. The workers keep the rules of
PROTOCOL (`ttl`, `table`, `noreclaim`, `release`, `gone`, `watch`) in their shortest form: what is
tested here is the fold and `decide`, not they.
"""

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from tests.helpers.events import thread_id
from tests.helpers.thread_checks import History
from tests.helpers.thread_events import (
    MODEL,
    Maker,
    attempt_failed,
    bent,
    cancel,
    configured,
    created,
    file_changed,
    interrupted,
    message,
    requested,
    responded,
    step_finished,
    step_released,
    step_started,
    tool_closed,
    tool_finished,
    tool_released,
    tool_settled,
    tool_started,
    turn_finished,
    turn_started,
    unknown,
)
from tests.helpers.threads import Entry, Story
from threadlog.events.content import Usage
from threadlog.events.envelope import Event
from threadlog.events.step import StepStarted
from threadlog.events.thread import Limits
from threadlog.events.tool import Effect, Gate, ToolStarted
from threadlog.ids import EventId, Seq, caused_id
from threadlog.limits import DEATHS_MAX, MODEL_ATTEMPTS_MAX
from threadlog.thread.decide import (
    ClaimCall,
    ClaimStep,
    CloseCalls,
    FinishStep,
    FinishTurn,
    Intent,
    RequestCalls,
    StartTurn,
    decide,
    open_claims,
)
from threadlog.thread.fold import judge
from threadlog.thread.state import Call, ThreadState, is_stopping

TTL, TIMEOUT, WATCH, REST = 5, 8, 6, 2_000
"""Ticks: a claim's time to start, an append's time to be known, a claim's time to be watched before
it is settled, and how long a thread may take to come to rest once faults have ended."""
TICK_MS = 100
Kind = Literal["planner", "runner"]


@dataclass(slots=True)
class Batch:
    """Events of one append. `end`: the position behind it, once the broker has answered."""

    events: list[Event]
    sent: int
    end: int | None = None


@dataclass(slots=True)
class OwnClaim:
    """A worker's own claim. `result`: what to append, once the effect has ended. `released_in`: the
    append that gave it up; that must arrive, since the claim itself may arrive at any time.
    """

    event: Event
    sent: int
    status: Literal["pending", "running", "finished", "released"] = "pending"
    is_read_back: bool = False
    done_at: int = 0
    result: list[Maker] = field(default_factory=list)
    released_in: Batch | None = None


@dataclass(slots=True)
class Worker:
    """One life of a planner or a tool-runner. `position`: the records that it has read."""

    name: str
    kind: Kind
    position: int
    claims: dict[EventId, OwnClaim] = field(default_factory=dict)
    batch: Batch | None = None
    wait_for: int = 0
    asleep_until: int = 0
    first_seen: dict[EventId, int] = field(default_factory=dict)


@dataclass(slots=True)
class Asked:
    """An input of a user, sent with the same id until it is judged. `sent`: when last."""

    event: Event
    sent: int


class Driver:
    """One run. `story` is the log; `states[n]` is the state after n records."""

    def __init__(self, seed: int, *, inputs_max: int = 12) -> None:
        self.rng = rng = random.Random(seed)
        self.seed, self.now, self.calm = seed, 0, rng.randint(20, 400)
        self.slow, self.lost, self.twice = (
            rng.choice(odds) for odds in ((0.02, 0.3), (0.0, 0.1), (0.0, 0.15))
        )
        self.faults = rng.choice((0.0, 0.02, 0.08))
        self.story = Story(thread_id(seed))
        self.states: list[ThreadState] = [self.story.state]
        self.history = History()
        self.starts: Counter[tuple[str, int]] = Counter()
        self.wire: list[tuple[int, int, Batch, bool]] = []
        self.dead: dict[str, int] = {}
        self.workers: list[Worker] = []
        self.owner: dict[Kind, Worker] = {}
        self.count = 0
        self.asked: list[Asked] = []
        self.plan = sorted(rng.randint(0, self.calm) for _ in range(rng.randint(1, inputs_max)))
        for kind in ("planner", "planner", "runner", "runner"):
            self._spawn("planner" if kind == "planner" else "runner")
        self._land([created()(self.story.state)])
        self._land([configured(model=MODEL, key="first")(self.story.state)])

    def run(self) -> Story:
        """The log of the whole life.

        Raises:  AssertionError: something that must hold does not, or the thread does not rest.
        """
        while not self._rests():
            assert self.now < self.calm + REST, "the thread does not come to rest"
            self.now += 1
            self._deliver()
            self._ask()
            if self.now < self.calm and self.rng.random() < self.faults:
                self._fault()
            for worker in self.rng.sample(self.workers, len(self.workers)):
                if worker.asleep_until <= self.now and worker in self.workers:
                    self._act(worker)
        state = self.story.state
        assert state.turn is None
        assert all(self.history.outcomes[call] == 1 for call in self.history.calls)
        return self.story

    def _rests(self) -> bool:
        state = self.story.state
        is_due = bool(state.queue) and not state.idle_since_empty_turn
        busy = self.plan or self.asked or self.wire or state.turn or is_due
        return self.now > self.calm and not busy

    # -- the broker

    def _send(self, events: list[Event]) -> Batch:
        batch, rng = Batch(events, self.now), self.rng
        delay = 1
        if self.now < self.calm:
            delay = rng.randint(2, 2 * TIMEOUT) if rng.random() < self.slow else rng.randint(1, 2)
            if rng.random() < self.twice:
                self._fly(self.now + rng.choice((delay, delay + 30)), batch, copy=True)
            if rng.random() < self.lost:
                return batch
        self._fly(self.now + delay, batch, copy=False)
        return batch

    def _fly(self, at: int, batch: Batch, *, copy: bool) -> None:
        self.count += 1
        heapq.heappush(self.wire, (at, self.count, batch, copy))

    def _deliver(self) -> None:
        while self.wire and self.wire[0][0] <= self.now:
            _, _, batch, is_copy = heapq.heappop(self.wire)
            self._land(batch.events)
            if not is_copy:
                batch.end = len(self.states) - 1
            if self.now < self.calm:
                self._land_the_worst_copy()

    def _land(self, events: list[Event]) -> None:
        for event in events:
            before = self.story.state
            judgement = self.story.append(event)
            self.history.watch(before, event, judgement)
            self.states.append(judgement.state)

    def _land_the_worst_copy(self) -> None:
        """A void record comes back in the very moment in which it would be accepted."""
        voids = [e.event for e in self.story.entries[-40:] if e.judgement.void is not None]
        fitting = [e for e in voids if judge(self.story.state, e).void is None]
        if fitting and self.rng.random() < self.twice:
            self._land([self.rng.choice(fitting)])

    # -- users, through views that lag

    def _ask(self) -> None:
        view = self.states[max(0, len(self.states) - 1 - self.rng.choice((0, 0, 1, 4)))]
        while self.plan and self.plan[0] <= self.now:
            self.plan.pop(0)
            event = self._wish(f"wish {len(self.plan)}")(view)
            self._send([event])
            if event.idempotency_key is not None:
                self.asked.append(Asked(event, self.now))
        judged = {e.event.event_id for e in self.story.entries if e.judgement.void != "stale"}
        self.asked = [asked for asked in self.asked if asked.event.event_id not in judged]
        for asked in self.asked:
            if self.now - asked.sent >= TIMEOUT:
                asked.sent = self.now
                self._send([bent(lambda _, e=asked.event: e, base_seq=view.head)(view)])  # type: ignore[misc]  # mypy cannot infer a lambda's default

    def _wish(self, key: str) -> Maker:
        rng = self.rng
        wishes: list[Maker] = [
            *(message(d, key=key) for d in ("next_turn", "next_turn", "next_step", "interrupt")),
            message("reject", key=key),
            cancel(key=key),
            cancel(rng.randint(0, 2), key=key),
            configured(system_prompt=key, key=key),
            configured(limits=Limits(steps_max=rng.randint(1, 4)), key=key),
            unknown("note.added", data=b'{"n":%d}' % rng.randint(0, 9)),
        ]
        return rng.choice(wishes)

    # -- faults of workers

    def _spawn(self, kind: Kind) -> Worker:
        self.count += 1
        worker = Worker(f"{kind}-{self.count}", kind, self.rng.randint(0, len(self.states) - 1))
        self.workers.append(worker)
        self.owner.setdefault(kind, worker)
        return worker

    def _fault(self) -> None:
        worker = self.rng.choice(self.workers)
        match self.rng.choice(("kill", "freeze", "move")):
            case "kill":
                self.workers.remove(worker)
                self.dead[worker.name] = self.now
                heir = self._spawn(worker.kind)
                if self.owner[worker.kind] is worker:
                    self.owner[worker.kind] = heir
            case "freeze":
                worker.asleep_until = self.now + self.rng.choice((2, TTL + 1, 3 * TIMEOUT))
            case _:
                self.owner[worker.kind] = worker

    # -- a worker

    def _act(self, worker: Worker) -> None:
        self._read(worker)
        state = self.states[worker.position]
        self._sweep(worker, state)
        if worker.batch is not None or worker.position < worker.wait_for:
            return
        chain = Chain(state, worker.name)
        for claim in worker.claims.values():
            self._close(chain, claim)
        claims: list[Event] = []
        # Now and then one that no longer owns the partition does not know it yet.
        if self.owner[worker.kind] is worker or (
            self.now < self.calm and self.rng.random() < self.faults
        ):
            self._settle(worker, chain)
            claims = self._follow(worker, chain)
        if chain.events:
            worker.batch = self._send(chain.events)
            for claim in worker.claims.values():
                if claim.status == "released" and claim.released_in is None:
                    claim.released_in = worker.batch
            for event in claims:
                worker.claims[event.event_id] = OwnClaim(event, self.now)

    def _read(self, worker: Worker) -> None:
        """Records up to some point, and what became of the last append."""
        end = len(self.states) - 1
        if self.now < self.calm and self.rng.random() < self.slow:
            end = self.rng.randint(worker.position, end)
        for entry in self.story.entries[worker.position : end]:
            if entry.event.worker == worker.name:
                _read_back(worker, entry)
        worker.position = end
        batch = worker.batch
        if batch is not None and self.now - batch.sent >= TIMEOUT:
            worker.batch = None
            self._give_up(worker, batch)
        elif batch is not None and batch.end is not None:
            worker.batch, worker.wait_for = None, batch.end

    def _give_up(self, worker: Worker, batch: Batch) -> None:
        """The append's fate is unknown: its claims are released, its releases said again."""
        names = {event.event_id for event in batch.events}
        for name, claim in worker.claims.items():
            if name in names and claim.status == "pending" and not claim.is_read_back:
                claim.status = "released"
            if claim.released_in is batch:
                claim.released_in = None

    def _sweep(self, worker: Worker, state: ThreadState) -> None:
        """Own claims against the state in hand."""
        is_open = {claim.event_id: call for claim, call in open_claims(state)}
        for name, claim in list(worker.claims.items()):
            call = is_open.get(name)
            must_stop = name not in is_open or is_stopping(state, call)
            if claim.status == "pending" and claim.is_read_back:
                if must_stop or self.now - claim.sent >= TTL:
                    claim.status = "released"
                else:
                    self._start(claim, state, call)
            elif claim.status == "pending" and self.now - claim.sent >= TTL:
                claim.status = "released"
            elif claim.status == "running" and (must_stop or self.now >= claim.done_at):
                claim.status = "finished"
                if must_stop:
                    claim.result = [interrupted() if call is None else _stopped(call)]
            elif self._is_over(worker, claim) and name not in is_open:
                del worker.claims[name]

    def _is_over(self, worker: Worker, claim: OwnClaim) -> bool:
        if claim.status == "released":
            last = claim.released_in
            return last is not None and last.end is not None and last.end <= worker.position
        is_read = worker.batch is None and worker.position >= worker.wait_for
        return claim.status == "finished" and is_read

    def _start(self, claim: OwnClaim, state: ThreadState, call: Call | None) -> None:
        """The effect starts: once per attempt, and never after its claim was closed."""
        body = claim.event.body
        assert isinstance(body, StepStarted | ToolStarted)
        subject: str = claim.event.turn_id or ""
        subject += f" {body.number}" if isinstance(body, StepStarted) else body.call_id
        self.starts[subject, body.attempt] += 1
        assert self.starts[subject, body.attempt] == 1, "two starts of one attempt"
        open_now = {known.event_id for known, _ in open_claims(self.story.state)}
        assert claim.event.event_id in open_now, "a start after the attempt was closed"
        claim.status, claim.done_at = "running", self.now + self.rng.choice((0, 1, 3, 12))
        claim.result = self._answer(state) if call is None else self._outcome(call)

    def _answer(self, state: ThreadState) -> list[Maker]:
        rng, step = self.rng, state.turn.step if state.turn else None
        usage = rng.choice((None, Usage(input=rng.randint(1, 99), output=7, cost_micros=3)))
        if rng.random() < 0.2:
            retryable = step is not None and step.failures + 1 < MODEL_ATTEMPTS_MAX
            due = self.now * TICK_MS + 500
            return [attempt_failed(retryable=retryable, delay_ms=500, due_at_ms=due, usage=usage)]
        calls = rng.choice((0, 0, 1, 2, 3)) if step and step.number < 4 else 0
        stop = rng.choice((None, None, None, "length", "refusal"))
        return [responded(calls, stop=stop, usage=usage)]  # type: ignore[arg-type]  # random texts

    def _outcome(self, call: Call) -> list[Maker]:
        rng, n = self.rng, call.ordinal
        changes = [file_changed(n, f"{k}.txt") for k in range(rng.choice((0, 0, 1, 2)))]
        outcome = rng.choice(("ok", "ok", "error", "timeout"))
        return [*changes, tool_finished(n, outcome)]  # type: ignore[arg-type]  # random texts

    def _close(self, chain: "Chain", claim: OwnClaim) -> None:
        """The claim's outcome or release, while the claim is open or may still arrive."""
        calls = {known.event_id: call for known, call in open_claims(chain.state)}
        name = claim.event.event_id
        if claim.status == "finished" and name in calls:
            for maker in claim.result:
                chain.add(maker)
        elif claim.status == "released" and claim.released_in is None:
            body = claim.event.body
            if isinstance(body, StepStarted):
                release = step_released(worker=chain.worker)
                changes: dict[str, object] = {"number": body.number}
            else:
                assert isinstance(body, ToolStarted)
                release, changes = tool_released(worker=chain.worker), {"call_id": body.call_id}
            cause = name if claim.is_read_back else claim.event.caused_by
            event_id = caused_id(name, "released")
            changes |= {"attempt": body.attempt, "claim": name, "caused_by": cause}
            chain.add(bent(release, event_id=event_id, turn_id=claim.event.turn_id, **changes))

    def _settle(self, worker: Worker, chain: "Chain") -> None:
        for claim, call in open_claims(chain.state):
            is_mine = (call is None) == (worker.kind == "planner")
            died = self.dead.get(claim.worker)
            first = worker.first_seen.setdefault(claim.event_id, self.now)
            if not is_mine or died is None or self.now - max(first, died) < WATCH:
                continue
            if call is None:
                chain.add(step_released(settles=True, worker=worker.name))
            elif call.effect != "unsafe" and call.deaths + 1 < DEATHS_MAX:
                chain.add(tool_released(call.ordinal, settles=True, worker=worker.name))
            else:
                chain.add(bent(tool_settled(call.ordinal), worker=worker.name))

    def _follow(self, worker: Worker, chain: "Chain") -> list[Event]:
        """All that follows, planned; the claims among it."""
        claims: list[Event] = []
        for _ in range(64):
            before = chain.state
            for intent in decide(chain.state, self.now * TICK_MS):
                if isinstance(intent, ClaimCall) and worker.kind == "runner":
                    ordinal = intent.call.ordinal
                    claims.append(chain.add(self._new(tool_started(ordinal, worker.name), chain)))
                elif isinstance(intent, ClaimStep) and worker.kind == "planner":
                    return [chain.add(self._new(step_started(worker.name), chain))]
                elif worker.kind == "planner":
                    for maker in _makers(intent, chain.head):
                        chain.add(maker)
            if chain.state is before or worker.kind == "runner":
                return claims
        raise AssertionError("decide does not come to rest")

    def _new(self, claim: Maker, chain: "Chain") -> Maker:
        """The claim, decided at the head that was read, under an id that no earlier one had.

        With an id that follows from the head alone, a worker whose first claim and its release were
        both lost would make the same claim again, and an old copy of the release could close it.
        """
        self.count += 1
        return bent(
            claim, decided_at=chain.head, event_id=caused_id(chain.worker, "claim", self.count)
        )


def _read_back(worker: Worker, entry: Entry) -> None:
    """An event of the worker came back; of two copies of a claim the first one counts."""
    event, is_accepted = entry.event, entry.judgement.void is None
    claim = worker.claims.get(event.event_id)
    if claim is None:
        if is_accepted and isinstance(event.body, StepStarted | ToolStarted):
            # It was given up before it came, and is given up again if it is still open.
            stray = OwnClaim(event, 0, status="released", is_read_back=True)
            worker.claims[event.event_id] = stray
    elif claim.status == "pending" and not claim.is_read_back:
        claim.is_read_back = is_accepted
        if not is_accepted:
            del worker.claims[event.event_id]


class Chain:
    """Events planned for one append, folded onto a state that only the plan sees."""

    def __init__(self, state: ThreadState, worker: str) -> None:
        self.state, self.head, self.worker = state, Seq(max(state.head, 0)), worker
        self.events: list[Event] = []

    def add(self, maker: Maker) -> Event:
        event = maker(self.state)
        self.events.append(event)
        self.state = judge(self.state, event).state
        return event


def _stopped(call: Call) -> Maker:
    """What its writer says of a call that was told to stop; with the changes on record so far."""
    return tool_finished(call.ordinal, "cancelled")


def _makers(intent: Intent, head: Seq) -> list[Maker]:
    """The planner's events for an intent that is no claim."""
    match intent:
        case StartTurn(admits=admits):
            return [turn_started(admits)]
        case RequestCalls(calls=calls, truncated=truncated):
            return [_request(call, truncated=truncated) for call in calls]
        case CloseCalls(calls=calls):
            return [tool_closed(call.ordinal) for call in calls]
        case FinishStep(attempts=attempts):
            return [bent(step_finished(), attempts=attempts)]
        case FinishTurn(verdict=verdict, caused_by=caused_by):
            return [bent(turn_finished(verdict, decided_at=head), caused_by=caused_by)]
        case _:
            return []


def _request(call: Call, *, truncated: bool) -> Maker:
    """What every planner says of a call: it follows from the call's own id."""
    digit = int(call.call_id[0], 16)
    effects: tuple[Effect, ...] = ("pure", "pure", "idempotent", "unsafe")
    gate: Gate = "refused" if truncated or digit >= 14 else "free"
    return requested(call.ordinal, gate=gate, effect=effects[digit % 4])
