"""The tool-runner: one attempt of a call is a claim, read back, a process, an outcome.

In:  every event, for the fold
Out: tool.started tool.released file.changed tool.finished
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from threadlog.errors import CorruptError, RefusedError
from threadlog.events.envelope import Body, Event
from threadlog.events.tool import (
    FileChanged,
    ToolFinished,
    ToolReleased,
    ToolRequested,
    ToolStarted,
)
from threadlog.ids import (
    CallId,
    EventId,
    Seq,
    WorkerId,
    WorkspaceId,
    caused_id,
    claim_id,
)
from threadlog.limits import DEATHS_MAX
from threadlog.ports.blobs import Blobs
from threadlog.ports.tools import ToolCall, ToolResult, Tools, WorkspaceRef
from threadlog.ports.views import StoredEvent
from threadlog.runtime.acting import Acting, ActorPorts, Plan
from threadlog.runtime.actor import Actor
from threadlog.runtime.chain import Chain
from threadlog.runtime.claims import OwnClaim, ReleaseReason
from threadlog.runtime.content import printable
from threadlog.runtime.lanes import Lane
from threadlog.runtime.patience import patiently
from threadlog.runtime.workspace import workspace_id
from threadlog.thread.command_line import ReadOutput, parse
from threadlog.thread.decide import ClaimCall, decide, open_claims
from threadlog.thread.state import Call, Claim, ThreadState, is_stopping
from threadlog.tool_runner.commands import command_label
from threadlog.tool_runner.output import output_lines
from threadlog.tool_runner.results import Ended, Job, output_of, store_result
from threadlog.tool_runner.slots import Slots

SLOTS = 16
"""Processes that one runner has at a time unless told otherwise; further calls wait unclaimed."""
_CALL_EVENTS_MAX = 256
"""Events of one call that are looked through for its outcome."""
_LOOKS_MAX = 3
"""How often an event is looked for that the views should have."""
READ_LINES = 200
"""Lines that `read @CALL_ID` shows when it names no last one."""


@dataclass(slots=True)
class Running(Acting):
    """The tool-runner's part of a lane.

    Shapes:  `commands` by call, of the open step. `problem`: why the workspace cannot be used; None
             when it can. `ready_for`: the workspace that was prepared. `is_preparing`: something is
             being read.
    """

    commands: dict[CallId, str] = field(default_factory=dict)
    ready_for: WorkspaceId | None = None
    is_preparing: bool = False
    problem: str | None = None


class ToolRunner(Actor[Running]):
    """Runs calls."""

    name = "tool_runner"

    def __init__(
        self,
        ports: ActorPorts,
        tools: Tools,
        blobs: Blobs,
        worker_id: WorkerId,
        slots: Slots,
        settle_gone: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`settle_gone`: ends what dead runners of this machine left running; None: nothing is."""
        super().__init__(ports, worker_id)
        self._slots = slots
        self._settle_gone = settle_gone
        self._tools = tools
        self._blobs = blobs

    def new_lane(self) -> Running:
        """A lane without commands."""
        return Running()

    def learn(self, lane: Lane[Running], event: Event) -> None:
        """Commands of the open step are kept, without their content the call cannot run."""
        body = event.body
        if isinstance(body, ToolRequested):
            if body.gate == "free" and isinstance(body.command, str):
                lane.own.commands[CallId(event.event_id)] = body.command
        elif lane.state.turn is None:
            lane.own.commands.clear()
        if isinstance(body, ToolFinished) and event.worker == self.worker_id:
            # Whoever wrote the outcome counts it, once it came back accepted.
            self._count(body, lane.own.commands.get(body.call_id))

    def _count(self, body: ToolFinished, command: str | None) -> None:
        seconds = None if body.duration_ms is None else body.duration_ms / 1_000
        self._ports.meter.call(command_label(command), body.outcome, seconds)

    def owns(self, call: Call | None) -> bool:
        """Calls are the tool-runner's to settle."""
        return call is not None

    def must_stop(self, lane: Lane[Running], claim: OwnClaim) -> bool:
        """A cancel of the turn or of the call, or an interrupt, stops it."""
        call = self._call_of(lane, claim.event.body)
        return call is not None and is_stopping(lane.state, call)

    def concerns(self, state: ThreadState) -> bool:
        """Calls that are ready and not claimed."""
        if state.turn is None or state.turn.step.phase != "calls":
            return False
        return any(c.status == "requested" and c.claim is None for c in state.turn.step.calls)

    def plan(self, lane: Lane[Running]) -> Plan:
        """Releases, outcomes, then claims of all calls that may start now."""
        chain = Chain(lane.state, self.writer, self._ports.folding)
        releases = list(lane.own.table.releases)
        for claim, reason in releases:
            chain.include(self.release_event(lane, claim, reason))
        outcomes = lane.own.table.finished()
        for claim in outcomes:
            self._plan_outcome(chain, claim)
        claims: list[OwnClaim] = []
        if self.is_owner and not self.is_draining and not self._has_foreign(chain.state):
            for intent in decide(chain.state, self._ports.clock.now_ms()):
                if isinstance(intent, ClaimCall) and self._can_claim(lane, intent.call):
                    claims.append(self._plan_claim(lane, chain, intent.call))
        return Plan(chain.events, claims, releases, outcomes)

    def _has_foreign(self, state: ThreadState) -> bool:
        """Whether another runner has a call of the thread: two never work in one workspace."""
        return any(claim.worker != self.worker_id for claim, call in open_claims(state) if call)

    def _plan_outcome(self, chain: Chain, claim: OwnClaim) -> None:
        turn = chain.state.turn
        started = claim.event.body
        assert isinstance(started, ToolStarted)
        calls = () if turn is None else turn.step.calls
        call = next((c for c in calls if c.call_id == started.call_id), None)
        if call is None or call.claim is None or call.claim.event_id != claim.claim_id:
            return
        ended: Ended = claim.result
        cause, workspace = claim.claim_id, workspace_id(chain.state)
        for n, (path, before, after) in enumerate(ended.changes, start=1):
            changed = FileChanged(
                call_id=call.call_id,
                attempt=call.attempt,
                claim=cause,
                ordinal=n,
                path=path,
                before=before,
                after=after,
            )
            event_id = caused_id(cause, FileChanged.TYPE, path)
            chain.add(changed, event_id, cause, workspace_id=workspace)
        body = ToolFinished(
            call_id=call.call_id,
            attempt=call.attempt,
            claim=cause,
            by="writer",
            outcome=ended.outcome,
            reason=ended.reason,
            output=ended.output,
            output_blob=ended.output_blob,
            output_bytes=ended.output_bytes,
            exit_code=ended.exit_code,
            signal=ended.signal,
            duration_ms=ended.duration_ms,
            files=len(ended.changes),
        )
        event_id = caused_id(call.call_id, body.TYPE, call.attempt, "writer")
        chain.add(body, event_id, cause, workspace_id=workspace)

    def _can_claim(self, lane: Lane[Running], call: Call) -> bool:
        """Rule "claim late": only with slot, workspace and command in hand."""
        own = lane.own
        is_ready = own.ready_for == workspace_id(lane.state)
        if not is_ready or call.call_id not in own.commands:
            if not own.is_preparing:
                own.is_preparing = True
                self.worker.spawn(lane, self._prepare(lane, call.call_id, call.requested_seq))
            return False
        return self._slots.take(lane, lambda: self.wake(lane))

    def _plan_claim(self, lane: Lane[Running], chain: Chain, call: Call) -> OwnClaim:
        body = ToolStarted(call_id=call.call_id, attempt=call.attempt, decided_at=chain.head)
        event_id = claim_id(call.call_id, 0, call.attempt, self.worker_id, chain.head)
        workspace = workspace_id(chain.state)
        event = chain.add(body, event_id, call.cause, workspace_id=workspace)
        job = Job(
            ToolCall(
                call_id=call.call_id,
                attempt=call.attempt,
                command=lane.own.commands[call.call_id],
                idempotency_key=call.call_id,
                timeout_ms=lane.state.config.call_timeout_ms,
            ),
            self._workspace(lane),
            lane.own.problem,
        )
        return OwnClaim(event, job)

    def on_claim_closed(self, lane: Lane[Running], claim: OwnClaim) -> None:
        """Its slot is free again."""
        self._slots.give_back()

    def _workspace(self, lane: Lane[Running]) -> WorkspaceRef:
        workspace = lane.state.config.workspace
        path = None if workspace.path is None else Path(workspace.path)
        return WorkspaceRef(workspace_id(lane.state), lane.tenant_id, lane.thread_id, path)

    async def _prepare(self, lane: Lane[Running], call: CallId, seq: Seq) -> None:
        """Effects: the workspace exists, the command is read; then the lane acts again.

        Raises:  CorruptError: the command is not to be had; the lane stops, it would ask for ever.
        """
        own = lane.own
        workspace = self._workspace(lane)
        try:
            await self._tools.prepare(workspace)
            own.problem = None
        except (RefusedError, OSError) as error:
            own.problem = str(error)
        own.ready_for = workspace.workspace_id
        if call not in own.commands:
            for found in await patiently(lambda: self._event_at(lane, seq)):
                self.learn(lane, found.event)
            if call not in own.commands and lane.state.turn is not None:
                raise CorruptError(f"the command of call {call} is not in the views")
        own.is_preparing = False
        self.act(lane)

    async def _event_at(self, lane: Lane[Running], seq: Seq) -> Sequence[StoredEvent]:
        """The event with this seq; none when the views have none even when looked at again."""
        views = self._ports.loader.views
        for _ in range(_LOOKS_MAX):
            await views.reached(lane.tenant_id, lane.thread_id, lane.position)
            stored = await views.events(
                lane.tenant_id, lane.thread_id, first=seq, last=seq, limit=1
            )
            if stored:
                return stored
        return ()

    def release_body(self, claim: OwnClaim, reason: ReleaseReason) -> Body:
        """`tool.released`."""
        started = claim.event.body
        assert isinstance(started, ToolStarted)
        return ToolReleased(
            call_id=started.call_id,
            attempt=started.attempt,
            claim=claim.claim_id,
            by="writer",
            reason=reason,
        )

    async def before_settlement(self) -> None:
        """Nothing runs on this machine any more that a dead runner has started."""
        if self._settle_gone is not None:
            await self._settle_gone()

    def abandoned(self, claim: OwnClaim) -> Event:
        """A call that had begun: whether it was done to its end is not known."""
        started = claim.event.body
        assert isinstance(started, ToolStarted)
        body = ToolFinished(
            call_id=started.call_id,
            attempt=started.attempt,
            claim=claim.claim_id,
            by="writer",
            outcome="unknown",
            reason="internal",
        )
        # Its thread is stopped: nothing of it is learned any more.
        job: Job = claim.job
        self._count(body, job.call.command)
        event_id = caused_id(started.call_id, body.TYPE, started.attempt, "writer")
        return self.closing_event(claim, body, event_id)

    def settlement(self, lane: Lane[Running], claim: Claim, call: Call | None) -> Event:
        """Law 4: a dead writer's call is `unknown`, unless it may be repeated without harm."""
        assert call is not None
        if call.effect != "unsafe" and call.deaths + 1 < DEATHS_MAX:
            released = ToolReleased(
                call_id=call.call_id,
                attempt=call.attempt,
                claim=claim.event_id,
                by="settlement",
                reason="worker_gone",
            )
            event_id = caused_id(claim.event_id, released.TYPE, "settlement")
            return self.stream_event(lane, released, event_id, claim.event_id)
        body = ToolFinished(
            call_id=call.call_id,
            attempt=call.attempt,
            claim=claim.event_id,
            by="settlement",
            outcome="unknown",
            reason="worker_gone",
        )
        event_id = caused_id(call.call_id, body.TYPE, call.attempt, "settlement")
        return self.stream_event(lane, body, event_id, claim.event_id)

    # -- the effect

    async def run_effect(self, lane: Lane[Running], claim: OwnClaim) -> Ended:
        """The command ran, or was stopped; its output and files are stored."""
        job: Job = claim.job
        clock = self._ports.clock
        started_ms = clock.mono_ms()
        try:
            result = await self._run(lane, job, lambda: not claim.is_late(clock.mono_ms()))
        except RefusedError as error:
            return Ended("error", printable(str(error)), reason="refused")
        except asyncio.CancelledError:
            if not claim.stopping:
                raise
            duration_ms = clock.mono_ms() - started_ms
            if self.is_draining and not self.must_stop(lane, claim):
                return Ended("unknown", "", reason="shutdown", duration_ms=duration_ms)
            return Ended("cancelled", "", reason="cancelled", duration_ms=duration_ms)
        claim.is_over = True
        duration_ms = clock.mono_ms() - started_ms
        return await store_result(self._blobs, lane.tenant_id, job, result, duration_ms)

    def failed_result(self, error: Exception) -> Ended:
        """Whether the command ran is not known when the runner itself broke off."""
        return Ended("unknown", printable(f"{type(error).__name__}: {error}"), reason="internal")

    async def _run(
        self, lane: Lane[Running], job: Job, may_start: Callable[[], bool]
    ) -> ToolResult:
        parsed = parse(job.call.command)
        if isinstance(parsed, ReadOutput):
            return await patiently(lambda: self._read_output(lane, parsed))
        if job.problem is not None:
            lane.own.ready_for = None
            raise RefusedError(job.problem)
        return await self._tools.run(job.call, job.workspace, may_start=may_start)

    async def _read_output(self, lane: Lane[Running], command: ReadOutput) -> ToolResult:
        """Lines of an output that an earlier call of this thread stored."""
        views = self._ports.loader.views
        await views.reached(lane.tenant_id, lane.thread_id, lane.position)
        output: bytes | None = None
        requested = EventId(command.call_id)
        found = await views.causes(
            lane.tenant_id, lane.thread_id, requested, "descendants", limit=_CALL_EVENTS_MAX
        )
        for stored in found:
            body, event = stored.event.body, stored.event
            if not isinstance(body, ToolFinished) or body.call_id != command.call_id:
                continue
            if event.thread_id == lane.thread_id:
                output = await output_of(self._blobs, lane.tenant_id, body)
        if output is None:
            return ToolResult("error", b"no stored output of that call in this thread", 44)
        last = command.last or command.first + READ_LINES - 1
        text = output_lines(output, command.first, last).encode()
        return ToolResult("ok", text, len(text), exit_code=0)

    def _call_of(self, lane: Lane[Running], body: object) -> Call | None:
        turn = lane.state.turn
        assert isinstance(body, ToolStarted)
        calls = () if turn is None else turn.step.calls
        return next((c for c in calls if c.call_id == body.call_id), None)
