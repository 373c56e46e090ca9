"""What the golden files tell, as steps. Names are for ever; a new story gets the next number."""

from itertools import chain, repeat

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
from tests.helpers.threads import (
    CALLS,
    CLAIMED,
    DONE,
    OPEN,
    RUNNING,
    Move,
    keep,
    named,
)
from threadlog.events.content import (
    BlobRef,
    FilePart,
    ImagePart,
    ModelRef,
    NativePart,
    TextPart,
    ThinkingPart,
    Usage,
)
from threadlog.events.thread import Limits
from threadlog.limits import DEATHS_MAX, INPUT_WINDOW

Script = tuple[Move, ...]

BEGUN: Script = (created(), configured(model=MODEL))
BLOB = BlobRef(sha256="cd" * 32, bytes=70_000, media_type="image/png")
LARGE = ModelRef(provider="other", name="large")
SOME, MORE = Usage(input=120, output=30), Usage(input=7, output=3, reasoning=1, cost_micros=12)
PRICED = Usage(input=9, output=9, cost_micros=41, price_version="2026-11")
END: Script = (step_finished(), turn_finished())
NEXT: Script = (step_finished(), step_started())
AGAIN: Script = (message(text="again"), turn_started(), step_started(), responded(), *END)


def call(n: int = 0, worker: str = "t1", output: str = "output") -> Script:
    """Call `n`, from its claim to its outcome."""
    return (tool_started(n, worker), tool_finished(n, output=output))


def asked(calls: int, *makers: Maker) -> Script:
    """A response with calls, and their requests: free and unsafe where no maker says otherwise."""
    return (responded(calls), *(makers or (requested(n) for n in range(calls))))


def times(count: int, *moves: Move) -> Script:
    return tuple(chain.from_iterable(repeat(moves, count)))


PURE3 = asked(3, *(requested(n, effect="pure") for n in range(3)))

SCRIPTS: dict[str, Script] = {
    "01-hello": DONE,
    "02-three-turns": (*DONE, *AGAIN, *AGAIN),
    "03-three-steps": (
        *CLAIMED,
        *(*asked(1), *call(0), *NEXT),
        *(*asked(2), *call(0), *call(1), *NEXT),
        *(responded(usage=SOME), *END),
    ),
    "04-pure-calls-together": (
        *(*CLAIMED, *PURE3, tool_started(0), tool_started(1), tool_started(2)),
        *(tool_finished(2), tool_finished(0), tool_finished(1), *NEXT, responded(), *END),
    ),
    "05-unsafe-calls-one-by-one": (*CALLS, *call(0), *call(1), *NEXT, responded(), *END),
    "06-refused-calls": (
        *(*CLAIMED, *asked(2, requested(0, gate="refused"), requested(1))),
        *(bent(tool_closed(0), reason="invalid_arguments", output="no JSON"), *call(1)),
        *(*NEXT, responded(), *END),
    ),
    "07-cut-with-calls": (
        *(*CLAIMED, responded(1, stop="length"), requested(0, gate="refused")),
        *(bent(tool_closed(0), reason="truncated"), *NEXT, responded(), *END),
    ),
    "08-cut-without-calls": (*CLAIMED, responded(stop="length"), *END),
    "09-cut-then-completed-is-void": (
        *(*CLAIMED, responded(1, stop="length"), requested(0, gate="refused"), tool_closed(0)),
        *(*NEXT, responded(), step_finished(), turn_finished("completed"), turn_finished()),
    ),
    "10-refusal": (*CLAIMED, responded(stop="refusal", text=""), *END),
    "11-retries-then-answer": (
        *(*CLAIMED, attempt_failed(error_class="rate_limited", delay_ms=500, due_at_ms=10**12)),
        *(step_started(), attempt_failed(error_class="cut_stream", usage=MORE)),
        *(step_started("p2"), responded(usage=SOME), *END),
    ),
    "12-retries-exhausted": (
        *(*CLAIMED, *times(3, attempt_failed(usage=MORE), step_started())),
        *(attempt_failed(retryable=False), *END),
    ),
    "13-permanent-error": (
        *(*CLAIMED, attempt_failed(retryable=False, error_class="context_overflow")),
        *(step_finished(), turn_finished("completed"), turn_finished()),
    ),
    "14-released-step": (*CLAIMED, step_released(), step_started("p2"), responded(), *END),
    "15-lost-claim-comes-late": (
        *(*OPEN, keep("lost", step_started()), step_released(worker="p1"), "lost"),
        *(step_started("p2"), "lost", responded(), "lost", *END),
    ),
    "16-planner-dies-once": (
        *(*CLAIMED, keep("zombie", responded()), step_released(settles=True, worker="p2")),
        *(step_started("p2"), "zombie", responded(), *END),
    ),
    "17-planner-dies-too-often": (
        *(*OPEN, *times(DEATHS_MAX, step_started(), step_released(settles=True))),
        *(step_finished(), turn_finished()),
    ),
    "18-released-call": (
        *(*RUNNING, tool_released(0), *call(0, "t2"), *call(1)),
        *(*NEXT, responded(), *END),
    ),
    "19-lost-call-claim-comes-late": (
        *(*CALLS, keep("lost", tool_started(0)), tool_released(0), "lost"),
        *(*call(0, "t2"), "lost", *call(1, "t2"), *NEXT, responded(), *END),
    ),
    "20-pure-call-repeated-after-a-death": (
        *(*CLAIMED, *PURE3, tool_started(0), keep("zombie", tool_finished(0))),
        *(tool_released(0, settles=True, worker="t2"), "zombie"),
        *(*call(0, "t2"), *call(1, "t2"), *call(2, "t2"), *NEXT, responded(), *END),
    ),
    "21-unsafe-call-unknown-after-a-death": (
        *(*RUNNING, keep("zombie", tool_finished(0)), tool_settled(0), "zombie"),
        *(*call(1, "t2"), *NEXT, responded(), *END),
    ),
    "22-pure-call-dies-too-often": (
        *(*CLAIMED, *asked(1, requested(0, effect="pure"))),
        *times(DEATHS_MAX - 1, tool_started(0), tool_released(0, settles=True)),
        *(tool_started(0), tool_released(0, settles=True), tool_settled(0)),
        *(*NEXT, responded(), *END),
    ),
    "23-cancelled-before-a-step": (*OPEN, cancel(), turn_finished(), turn_started(), *AGAIN),
    "24-cancelled-while-the-model-answers": (*CLAIMED, cancel(), interrupted("so f"), *END, *AGAIN),
    "25-cancelled-while-calls-run": (
        *(*RUNNING, cancel(), tool_closed(1), tool_started(1), turn_finished()),
        *(tool_finished(0, "cancelled"), *END, *AGAIN),
    ),
    "26-one-call-cancelled": (
        *(*CLAIMED, *PURE3, tool_started(0), tool_started(1), cancel(1), cancel(2)),
        *(tool_finished(1, "cancelled"), tool_closed(2), tool_finished(0)),
        *(*NEXT, responded(), *END),
    ),
    "27-outcome-overtakes-the-cancel": (
        *(*CLAIMED, *asked(1), tool_started(0), keep("ok", tool_finished(0)), cancel(), "ok"),
        *(*END, cancel()),
    ),
    "28-cancelled-in-a-retry": (*CLAIMED, attempt_failed(usage=MORE), cancel(), *END),
    "29-steered": (
        *(*CLAIMED, keep("end", turn_finished()), message("next_step", "steer"), *asked(1)),
        *(*call(0), *NEXT, responded(), step_finished(), "end", turn_finished()),
    ),
    "30-model-interrupted": (
        *(*CLAIMED, message("next_step", "later"), message("interrupt", "stop")),
        *(interrupted("half"), *NEXT, responded(), *END),
    ),
    "31-calls-interrupted": (
        *(*RUNNING, message("interrupt"), tool_closed(1), tool_finished(0, "cancelled")),
        *(keep("old", step_started("p2")), *NEXT, "old", responded(), *END),
    ),
    "32-follow-ups": (
        *(*CLAIMED, message(text="2"), message(text="3"), responded(), *END),
        *(turn_started(), step_started(), responded(), *END),
    ),
    "33-rejects": (*CLAIMED, message("reject"), responded(), *END, message("reject"), *OPEN[3:]),
    "34-files-changed": (
        *(*RUNNING, file_changed(0, "src/a.py"), file_changed(0, "b"), tool_finished(0)),
        *(tool_started(1), bent(file_changed(1, "gone"), before=BLOB, after=None)),
        *(tool_finished(1), *NEXT, responded(), *END),
    ),
    "35-file-change-lost-and-repeated": (
        *(*CLAIMED, *asked(1), tool_started(0), keep("a", file_changed(0, "a"))),
        *(bent(tool_finished(0), files=1), bent(file_changed(0, "b"), ordinal=2)),
        *("a", "a", tool_finished(0), "a", *END),
    ),
    "36-settings-change-in-a-turn": (
        *(*OPEN, keep("old", step_started()), configured(model=LARGE, system_prompt="p"), "old"),
        *(step_started(), configured(limits=Limits(steps_max=9, output_tokens_max=64))),
        *(responded(), keep("end", turn_finished()), step_finished(), configured(tools=())),
        *("end", turn_finished()),
    ),
    "37-no-model": (
        created(),
        message(),
        turn_started(),
        turn_finished("error"),
        *BEGUN[1:],
        *AGAIN,
    ),
    "38-step-budget": (
        *(created(), configured(model=MODEL, limits=Limits(steps_max=2)), message()),
        *(turn_started(), step_started(), *asked(1), *call(0), *NEXT, *asked(1), *call(0)),
        *(step_finished(), turn_finished("budget")),
    ),
    "39-unknown-events": (
        *(*OPEN, unknown(data=b'{"n": 1.0, "s": "\\u00e9"}'), unknown("turn.started", version=2)),
        *(step_started(), unknown(), responded(), *END),
    ),
    "40-halted": (*CLAIMED, unknown("turn.merged", critical=True), responded(), message()),
    "41-bad-bodies": (
        *(*OPEN, unknown("step.started"), unknown("turn.finished", data=b'{"verdict":"fine"}')),
        *(unknown(data=b"null"), unknown("message.received", data=b"[1]")),
        *(step_started(), responded(), *END),
    ),
    "42-unicode": (
        created("Zażółć → ٣ 👩\u200d👩\u200d👧"),
        configured(model=MODEL, system_prompt="\u202eRTL\u2028"),
        *(message(text='a\u0000b\r\n\t"\\ ﷽ ñ n\u0303'), turn_started(), step_started()),
        *(responded(1, text="🂡" * 40), requested(0, command="echo 'é'"), tool_started(0)),
        *(file_changed(0, "дир/файл.txt"), tool_finished(0, output="\u001b[31mred\u001b[0m")),
        *(*NEXT, responded(text=""), *END),
    ),
    "43-everything-twice": (
        *(named("c", created()), "c", named("g", configured(model=MODEL)), "g"),
        *(named("m", message()), "m", named("t", turn_started()), "t"),
        *(named("s", step_started()), "s", named("r", responded(1)), "r"),
        *(named("q", requested(0)), "q", named("b", tool_started(0)), "b"),
        *(named("f", file_changed(0)), "f", named("o", tool_finished(0)), "o", "b", "f"),
        *(named("e", step_finished()), "e", "s", "r"),
        *(step_started(), responded(), step_finished(), named("z", turn_finished()), "z", "t", "m"),
    ),
    "44-planners-race": (
        *(*BEGUN, message(), keep("t", turn_started()), turn_started(), "t"),
        *(keep("a", step_started("p1")), keep("b", step_started("p2")), "b", "a"),
        *(keep("wrong", bent(responded(), worker="p1")), "wrong", responded(), *END),
    ),
    "45-runners-race": (
        *(*CLAIMED, *PURE3, keep("a", tool_started(0, "t1")), keep("b", tool_started(1, "t2"))),
        *("a", "b", tool_finished(0), "b", tool_started(1, "t2"), tool_started(2, "t1")),
        *(tool_finished(1), tool_started(2, "t1"), tool_finished(2), *NEXT, responded(), *END),
    ),
    "46-parts-of-all-kinds": (
        *(*BEGUN, message(content=(ImagePart(blob=BLOB), FilePart(name="a", blob=BLOB)))),
        *(message(content=(TextPart(text=BLOB),)), turn_started(), step_started()),
        responded(
            content=(
                ThinkingPart(text="hm", signature="sig"),
                NativePart(provider="scripted", json_text='{"type":"x"}'),
                TextPart(text=BLOB),
            )
        ),
        *END,
    ),
    "47-inputs-forgotten": (
        *(*BEGUN, named("old", message("next_step", key="old")), turn_started()),
        *(message(key=f"n{n}") for n in range(INPUT_WINDOW)),
        *("old", message(base_seq=1, key="late"), message(key="late"), step_started()),
        *(responded(), *END),
    ),
    "48-void-inputs-forgotten": (
        *(*OPEN, named("old", message("reject", key="old"))),
        *(message("reject", key=f"n{n}") for n in range(INPUT_WINDOW)),
        *("old", cancel(), turn_finished(), "old"),
    ),
    "49-outcomes-of-all-kinds": (
        *(*CLAIMED, *asked(4, *(requested(n, effect="idempotent") for n in range(4)))),
        *(tool_started(0), bent(tool_finished(0, "error"), exit_code=2)),
        *(tool_started(1), bent(tool_finished(1, "error", ""), signal=9)),
        *(tool_started(2), tool_finished(2, "timeout", "so far")),
        *(tool_started(3), bent(tool_finished(3), output_blob=BLOB, output_bytes=70_000)),
        *(*NEXT, responded(usage=PRICED), *END),
    ),
}
LIVES: dict[str, int] = {"50-a-random-life": 2_589, "51-a-longer-one": 1_044}
"""Random lives, by the seed of their driver."""
