"""One thread as a page of text."""

from tests.helpers.events import event_id, thread_id
from tests.helpers.turns import TURN, finished, happened, stored, whole_turn
from threadlog.cli.event_text import event_text, outcome_text
from threadlog.cli.show import Page, header
from threadlog.cli.terminal import Look
from threadlog.events.content import BlobRef, ImagePart, TextPart
from threadlog.events.input import CancelRequested, MessageReceived
from threadlog.events.step import (
    ModelAttemptFailed,
    ModelInterrupted,
    ModelResponded,
    StepReleased,
)
from threadlog.events.thread import Limits, ThreadConfigured
from threadlog.events.tool import FileChanged, ToolFinished, ToolReleased, ToolRequested
from threadlog.ids import LOCAL_TENANT, Position, Seq
from threadlog.ports.usage import UsageTotals
from threadlog.ports.views import ThreadRow

PAGE = """\
    1 thread.configured  model scripted/demo, workspace /srv/project
    2 user:x
      repair
      it
── 3 turn 1 ──
    5 step 1, scripted/demo  (1,200 in, 30 out)
      I look.
   11 $ make
      error, exit code 2, 1,234 ms
      made a.py, 1,723 bytes
        boom
   12 $ ls
      ok, 1,234 ms
        a.py
        b.py
   15 step 2, scripted/demo  (1,200 in, 30 out)
      Done.
── 17 completed after 2 steps ──
"""
BLOB = BlobRef(sha256="3" * 64, bytes=70_000, media_type="text/plain")


def row(**changed: object) -> ThreadRow:
    members: dict[str, object] = {
        "tenant_id": LOCAL_TENANT,
        "thread_id": thread_id(),
        "title": "repair\x1b[31m it",
        "status": "idle",
        "head": Seq(17),
        "position": Position(18),
        "turns": 1,
        "open_turn": None,
        "queued": 0,
        "verdict": "completed",
        "model": "scripted/demo",
        "usage": UsageTotals(steps=2, input=2_400, output=60, cost_micros=1_500),
        "created_at": "2026-11-30T18:00:00.000Z",
        "updated_at": "2026-11-30T18:00:01.000Z",
    }
    return ThreadRow(**(members | changed))  # type: ignore[arg-type]  # members of a row


def page(*events: object, look: Look | None = None) -> str:
    chosen = whole_turn() if not events else stored([*events])  # type: ignore[list-item]  # events
    return "".join(f"{line}\n" for line in Page(look or Look()).lines(chosen))


def test_a_turn_reads_like_a_story() -> None:
    assert page() == PAGE


def test_the_header_says_what_is_known() -> None:
    lines = list(header(row(), "3", Look()))
    assert lines == [
        f"thread  {thread_id()}",
        "title   repair it",
        "status  idle, last verdict completed",
        "events  18 accepted, 3 void",
        "turns   1",
        "model   scripted/demo",
        "usage   2 steps, 2,400 in, 60 out, $0.001500",
        "time    2026-11-30T18:00:00.000Z to 2026-11-30T18:00:01.000Z",
    ]


def test_the_header_of_a_young_thread() -> None:
    young = row(verdict=None, model=None, status="queued", queued=2, usage=UsageTotals())
    lines = list(header(young, "0", Look()))
    assert "status  queued, 2 messages waiting" in lines
    assert "model   none" in lines
    assert "usage   0 steps, 0 in, 0 out, cost unknown" in lines


def test_a_call_that_has_not_ended_is_shown_as_such() -> None:
    events = whole_turn()[:10]
    lines = list(Page(Look()).lines(events))
    assert lines[-4:] == [
        "      $ ls",
        "      not ended yet",
        "      $ make",
        "      not ended yet",
    ]


def test_a_long_output_is_cut_and_an_outcome_without_its_request_is_shown() -> None:
    output = "\n".join(str(n) for n in range(100))
    text = page(happened("f", finished("unseen", "ok", output), "s"))
    assert "(call " in text
    assert "… 88 more lines" in text
    assert "\n        12\n" not in text


def test_C61_nothing_shown_reaches_the_terminal_as_a_command() -> None:
    evil = "\x1b]52;c;cm0=\x07\x1b]8;;http://e\x1b\\x\x9b2J"
    message = MessageReceived(base_seq=-1, delivery="next_turn", content=(TextPart(text=evil),))
    changed = FileChanged(
        call_id=finished("c").call_id,
        attempt=1,
        claim=event_id("c"),
        ordinal=1,
        path=f"{evil}.py",
        after=BLOB,
    )
    request = ToolRequested(ordinal=0, gate="free", effect="unsafe", command=f"echo {evil}")
    text = page(
        happened("m", message, actor=f"user:{evil}"),
        happened("c", request, "m"),
        happened("fc", changed, "c"),
        happened("f", finished("c", "ok", evil), "c"),
        look=Look(columns=80),
    )
    assert not [char for char in text if char in "\x1b\x07\x9b\x9d"]
    assert text.count("x") > 3


def test_texts_of_the_rarer_events() -> None:
    claim = event_id("claim")
    failed = ModelAttemptFailed(
        claim=claim,
        attempt=1,
        error_class="rate_limited",
        message="slow\ndown",
        retryable=True,
        delay_ms=2_500,
    )
    interrupted = ModelInterrupted(
        claim=claim, attempt=1, content=(TextPart(text="half an ans"),), cause="cancel"
    )
    image = MessageReceived(base_seq=-1, delivery="reject", content=(ImagePart(blob=BLOB),))
    long = ModelResponded(
        claim=claim,
        attempt=1,
        content=(TextPart(text=BLOB),),
        stop="length",
        model={"provider": "p", "name": "n"},  # type: ignore[arg-type]  # validated
    )
    released = {"attempt": 1, "claim": claim, "by": "settlement", "reason": "worker_gone"}
    bodies = {
        "rate limited, next attempt in 2.5 s: slow down": failed,
        "rate limited, for good: slow down": failed.model_copy(update={"retryable": False}),
        "cancel: half an ans": interrupted,
        "user:x: [image]": image,
        '"[70,000 bytes]", cut at the token limit': long,
        "user:x: stop the turn": CancelRequested(base_seq=1, turn_id=TURN, cause="user"),
        "step 2: worker gone": StepReleased.model_validate(released | {"number": 2}),
        "worker gone": ToolReleased.model_validate(released | {"call_id": claim}),
        "refused, unknown tool: x": ToolRequested(
            ordinal=0, gate="refused", effect="unsafe", command="x", reason="unknown tool"
        ),
        "a system prompt, steps_max 3": ThreadConfigured(
            base_seq=1, system_prompt="be brief", limits=Limits(steps_max=3)
        ),
    }
    said = {event_text(happened(text, body)): text for text, body in bodies.items()}
    assert said == {text: text for text in bodies}


def test_outcomes_in_words() -> None:
    def outcome(**members: object) -> str:
        fields = {"call_id": TURN, "attempt": 1, "by": "writer", **members}
        return outcome_text(ToolFinished.model_validate(fields))

    assert outcome(outcome="ok", duration_ms=12) == "ok, 12 ms"
    assert outcome(outcome="error", exit_code=1, reason="exit") == "error, exit code 1"
    assert outcome(outcome="error", signal=9, reason="memory") == "error, signal 9, memory"
    assert outcome(outcome="not_started", reason="truncated") == "not started, truncated"
    assert outcome(outcome="cancelled", reason="cancelled") == "cancelled"
