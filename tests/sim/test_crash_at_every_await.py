"""P1, P2: a turn whose runtime dies at any await ends all the same, and nothing happens twice."""

import random
from collections import Counter

import pytest

from tests.helpers.lives import Life, Universe
from threadlog.adapters.model_api.script import parse_script
from threadlog.events.envelope import Event
from threadlog.events.step import StepStarted
from threadlog.events.tool import ToolFinished, ToolRequested, ToolStarted
from threadlog.events.turn import TurnFinished
from threadlog.ids import CallId
from threadlog.thread.messages import AssistantMessage, ToolMessage, UserMessage
from threadlog.thread.transcript import Transcript

# A request that fails once, then three calls: a pure one, an unsafe one, one that is refused.
SCRIPT = parse_script(
    """[
    {"error": {"class": "overloaded", "times": 1, "retry_after_ms": 0}, "text": "I look",
     "calls": ["read a.txt", "make test", {"name": "nope", "arguments": {}}]},
    {"text": "done"}
    ]"""
)
PAIRS = 100
SEED = 4711

Told = list[tuple[str, ...]]


async def lived(*dies_at: int | None) -> tuple[Universe, list[Life]]:
    """A turn carried by these lives in turn; one that does not die carries it to its end."""
    universe, lives = Universe(SCRIPT), list[Life]()
    await universe.begin()
    for n, point in enumerate((*dies_at, None)):
        lives.append(Life(f"life{n}", point))
        if await universe.live(lives[-1]):
            return universe, lives
    raise AssertionError("a life without a death ends the turn")


def accepted(universe: Universe) -> list[Event]:
    return [event for event, judgement in universe.judged if judgement.void is None]


def told(universe: Universe) -> Told:
    """The transcript without ids: who said what; `unknown` stands for any text of that outcome."""
    transcript = Transcript()
    for event in accepted(universe):
        transcript.add(event)
    lines: Told = []
    for said in transcript.messages():
        match said:
            case UserMessage(parts=parts):
                lines.append(("user", str(parts)))
            case AssistantMessage(parts=parts, calls=calls):
                lines.append(("model", str(parts), *(c.arguments for c in calls)))  # type: ignore[arg-type]  # short: inline
            case ToolMessage(text=text):
                lines.append(("tool", "unknown" if "outcome unknown" in str(text) else str(text)))
    return lines


def check(universe: Universe, undisturbed: Told) -> None:
    """What must hold after any death (RELIABILITY I2, I3, I4, I8)."""
    events = accepted(universe)
    assert len({e.event_id for e in events}) == len(events)
    ends = [e.body.verdict for e in events if isinstance(e.body, TurnFinished)]
    assert ends == ["completed"]
    # Each call has exactly one accepted outcome.
    called = [CallId(e.event_id) for e in events if isinstance(e.body, ToolRequested)]
    finished = Counter(e.body.call_id for e in events if isinstance(e.body, ToolFinished))
    assert dict(finished) == dict.fromkeys(called, 1)
    # Every effect has its own claim, accepted and open when it began; none began twice.
    claims = [effect.claim for effect in universe.effects]
    assert None not in claims
    assert len(set(claims)) == len(claims)
    attempts = [(e.call, e.attempt) for e in universe.effects if e.kind == "command"]
    assert len(set(attempts)) == len(attempts)
    unsafe = [e for e in universe.effects if e.command == "make test"]
    assert len(unsafe) <= 1
    # The state is the undisturbed one, but for an `unknown` whose worker died after its claim.
    lines = told(universe)
    unsafe_call = called[1]
    settled = [e for e in events if isinstance(e.body, ToolFinished) and e.body.by == "settlement"]
    for line, wanted in zip(lines, undisturbed, strict=True):
        if line == ("tool", "unknown"):
            assert [e.body.call_id for e in settled if isinstance(e.body, ToolFinished)] == [
                unsafe_call
            ]
            assert any(
                isinstance(e.body, ToolStarted) and e.body.call_id == unsafe_call for e in events
            )
        else:
            assert line == wanted
    assert len(unsafe) == 1 or settled


@pytest.fixture
async def undisturbed() -> tuple[Told, list[str]]:
    """What is told without a death, and the points that were passed."""
    universe, [life] = await lived()
    lines = told(universe)
    check(universe, lines)
    kinds = Counter(effect.kind for effect in universe.effects)
    assert kinds == {"request": 3, "command": 2}, "one request fails, one call is refused"
    assert [len([e for e in accepted(universe) if isinstance(e.body, StepStarted)])] == [3]
    return lines, life.points


async def test_P1_a_crash_at_every_await(undisturbed: tuple[Told, list[str]]) -> None:
    lines, points = undisturbed
    assert len(points) > 100, "the ports are watched, or this proves nothing"
    assert {p.partition(".")[0] for p in points} >= {"before log", "after model", "after tools"}
    unknowns = 0
    for at in range(1, len(points) + 1):
        universe, lives = await lived(at)
        assert len(lives) == 2, "it died"
        try:
            check(universe, lines)
        except AssertionError as error:
            raise AssertionError(f"died {points[at - 1]} (point {at})") from error
        unknowns += ("tool", "unknown") in told(universe)
    assert 0 < unknowns < len(points) // 4, "some deaths lie between start and result"


async def test_P2_two_crashes_the_second_one_in_the_recovery(
    undisturbed: tuple[Told, list[str]],
) -> None:
    lines, points = undisturbed
    rng = random.Random(SEED)
    for _ in range(PAIRS):
        pair = rng.randint(1, len(points)), rng.randint(1, len(points))
        universe, _ = await lived(*pair)
        try:
            check(universe, lines)
        except AssertionError as error:
            raise AssertionError(f"died at {pair}, seed {SEED}") from error
