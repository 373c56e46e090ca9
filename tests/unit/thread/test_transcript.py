"""The transcript: order, results, notes, steering; law 5 in the prompt."""

import pytest

from tests.helpers.thread_events import (
    MODEL,
    Maker,
    attempt_failed,
    bent,
    cancel,
    configured,
    created,
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
from tests.helpers.threads import CALLS, CLAIMED, OPEN, Move, Story
from threadlog.events.content import BlobRef, NativePart, TextPart, ThinkingPart
from threadlog.events.tool import ToolFinished
from threadlog.ids import CallId, EventId
from threadlog.thread.messages import AssistantMessage, Message, ToolMessage, UserMessage
from threadlog.thread.transcript import Transcript, answer_text, outcome_text

BLOB = BlobRef(sha256="ab" * 32, bytes=70_000, media_type="text/plain")


def transcript(story: Story) -> Transcript:
    grown = Transcript()
    for event in story.accepted:
        grown.add(event)
    return grown


def messages(*steps: Move) -> tuple[Message, ...]:
    return transcript(Story().go(*steps)).messages()


def brief(found: tuple[Message, ...]) -> list[str]:
    """Each message as a line: who, and the first words."""
    lines = []
    for item in found:
        match item:
            case UserMessage(parts=parts):
                lines.append(f"user: {answer_text(parts)}")
            case AssistantMessage(parts=parts, calls=calls):
                asks = f" +{len(calls)}" if calls else ""
                cut = " …" if item.interrupted else ""
                lines.append(f"model: {answer_text(parts)}{asks}{cut}")
            case ToolMessage(text=text):
                lines.append(f"tool: {text}")
    return lines


def test_a_turn_reads_as_it_happened() -> None:
    steps: tuple[Move, ...] = (created(), configured(model=MODEL), message(text="go"))
    steps += (turn_started(), step_started(), responded(calls=1, text="look"), requested(0))
    steps += (tool_started(0), tool_finished(0, output="found"), step_finished())
    steps += (step_started(), responded(text="there"), step_finished(), turn_finished())
    assert brief(messages(*steps)) == ["user: go", "model: look +1", "tool: found", "model: there"]


def test_a_message_is_read_where_it_was_admitted_and_not_where_it_came() -> None:
    story = Story().go(*CLAIMED, message("next_turn", "later"), responded(calls=1, text="1"))
    story.go(message("next_step", "steer"), requested(0), tool_started(0))
    story.go(tool_finished(0, output="r"))
    assert brief(transcript(story).messages()) == ["user: hello", "model: 1 +1", "tool: r"]
    story.go(step_finished(), step_started(), responded(text="2"), step_finished())
    story.go(turn_finished(), turn_started())
    assert brief(transcript(story).messages()) == [
        *("user: hello", "model: 1 +1", "tool: r", "user: steer", "model: 2", "user: later"),
    ]


def test_an_interrupt_is_read_before_other_steering() -> None:
    steps: tuple[Move, ...] = (*CLAIMED, message("next_step", "b"), message("interrupt", "a"))
    found = messages(*steps, interrupted("so f"), step_finished(), step_started())
    assert brief(found) == ["user: hello", "model: so f …", "user: a", "user: b"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_results_stand_in_the_models_order_whatever_order_they_came_in(
    order: tuple[int, ...],
) -> None:
    story = Story().go(*CLAIMED, responded(calls=3))
    story.go(*(requested(n, effect="pure") for n in range(3)))
    story.go(*(tool_started(n) for n in range(3)))
    story.go(*(tool_finished(n, output=f"result {n}") for n in order))
    found = transcript(story).messages()
    assert brief(found)[2:] == ["tool: result 0", "tool: result 1", "tool: result 2"]
    [answer] = [m for m in found if isinstance(m, AssistantMessage)]
    assert [c.call_id for c in answer.calls] == [
        m.call_id for m in found if isinstance(m, ToolMessage)
    ]


def test_law_5_a_response_is_told_only_with_all_its_results() -> None:
    story = Story().go(*CALLS)
    for steps in ((), (tool_started(0),), (tool_finished(0),), (tool_started(1),)):
        story.go(*steps)
        assert brief(transcript(story).messages()) == ["user: hello"]
    story.go(tool_finished(1))
    assert brief(transcript(story).messages())[1:] == ["model: done +2", *["tool: output"] * 2]


def test_law_5_holds_for_every_prefix_of_a_stream() -> None:
    story = Story().go(*CALLS, tool_started(0), cancel(), tool_finished(0, "cancelled"))
    story.go(tool_closed(1), step_finished(), turn_finished(), message(), turn_started())
    grown = Transcript()
    for event in story.accepted:
        grown.add(event)
        asked = {c.call_id for m in grown.messages() for c in getattr(m, "calls", ())}
        told = {m.call_id for m in grown.messages() if isinstance(m, ToolMessage)}
        assert asked == told


@pytest.mark.parametrize(
    ("steps", "text", "is_error"),
    [
        ((tool_finished(0, output=""),), "[no output]", False),
        (
            (tool_finished(0, "timeout", "partial"),),
            "partial\n[timed out and was killed]",
            True,
        ),
        ((tool_finished(0, "cancelled", ""),), "[cancelled and was killed]", True),
        (
            (tool_settled(0),),
            "[outcome unknown: the worker died while this ran. It may or may not have taken "
            "effect; verify before you retry (worker_gone)]",
            True,
        ),
        ((bent(tool_finished(0, "error", ""), exit_code=3),), "[exit code 3]", True),
        ((bent(tool_finished(0, "error", "x"), exit_code=3),), "x\n[exit code 3]", True),
        ((bent(tool_finished(0, "error", ""), signal=9),), "[killed by signal 9]", True),
        ((bent(tool_finished(0, "error", ""), reason="refused"),), "[failed: refused]", True),
        ((tool_finished(0, "error", ""),), "[failed]", True),
        ((bent(tool_finished(0, "error", ""), exit_code=0),), "[failed]", True),
    ],
)
def test_the_model_is_told_what_came_of_a_call(
    steps: tuple[Move, ...], text: str, is_error: bool
) -> None:
    story = Story().go(*CLAIMED, responded(calls=1), requested(0), tool_started(0), *steps)
    [told] = [m for m in transcript(story).messages() if isinstance(m, ToolMessage)]
    assert (told.text, told.is_error, told.name) == (text, is_error, "cli")


@pytest.mark.parametrize(
    ("closed", "text"),
    [
        (tool_closed(0), "[not started: it was not run]"),
        (
            bent(tool_closed(0), reason="truncated"),
            "[not started: it was not run (truncated)]",
        ),
        (tool_closed(0, "denied"), "[denied: it was not run]"),
        (
            bent(tool_closed(0), reason="usage", output="read: no path"),
            "read: no path\n[not started: it was not run (usage)]",
        ),
    ],
)
def test_the_model_is_told_what_was_not_started(closed: Maker, text: str) -> None:
    steps: tuple[Move, ...] = (*CLAIMED, responded(calls=1), requested(0, gate="refused"), closed)
    [told] = [m for m in messages(*steps) if isinstance(m, ToolMessage)]
    assert (told.text, told.is_error) == (text, True)


def test_a_long_output_stays_a_reference() -> None:
    body = ToolFinished(
        call_id=CallId("c"), attempt=1, by="writer", outcome="ok", output=BLOB, claim=EventId("x")
    )
    assert outcome_text(body) == BLOB


def test_interrupted_text_is_kept_and_marked() -> None:
    [answer] = messages(*CLAIMED, cancel(), interrupted("half a sen"))[1:]
    assert isinstance(answer, AssistantMessage)
    assert (answer.interrupted, answer.calls, answer_text(answer.parts)) == (True, (), "half a sen")


def test_an_interruption_before_the_first_word_leaves_nothing() -> None:
    assert brief(messages(*CLAIMED, cancel(), interrupted(""))) == ["user: hello"]


def test_attempts_that_failed_leave_nothing_and_admit_once() -> None:
    steps: tuple[Move, ...] = (*OPEN, message("next_step", "steer"), step_started())
    steps += (attempt_failed(), step_started(), step_released(), step_started(), responded())
    assert brief(messages(*steps)) == ["user: hello", "user: steer", "model: done"]


def test_an_earlier_attempt_of_a_call_leaves_nothing() -> None:
    steps: tuple[Move, ...] = (*CLAIMED, responded(calls=1), requested(0), tool_started(0))
    steps += (tool_released(0), tool_started(0), tool_finished(0, output="second"))
    assert brief(messages(*steps))[2:] == ["tool: second"]


def test_native_and_thinking_parts_are_kept_verbatim_with_their_provider() -> None:
    parts = (
        ThinkingPart(text="hm", signature="s1"),
        NativePart(provider="scripted", json_text='{"a": 1}'),
        TextPart(text="so"),
    )
    [_, answer] = messages(*CLAIMED, responded(content=parts))
    assert isinstance(answer, AssistantMessage)
    assert (answer.parts, answer.provider) == (parts, "scripted")
    assert answer_text(answer.parts) == "so"


def test_unknown_events_and_settings_are_no_part_of_it() -> None:
    assert brief(messages(*CLAIMED, unknown(), configured(system_prompt="p"), responded())) == [
        *("user: hello", "model: done"),
    ]


def test_what_is_pending_is_read_and_not_kept() -> None:
    story = Story().go(*CLAIMED, responded(calls=1), requested(0, gate="refused"))
    grown = transcript(story)
    ahead = Story().go(*CLAIMED, responded(calls=1), requested(0, gate="refused"))
    ahead.go(message("next_step", "steer"), tool_closed(0), step_finished())
    pending = ahead.accepted[len(story.accepted) :]
    steer = pending[0].event_id
    for _ in range(2):
        assert brief(grown.messages(pending, (steer,))) == [
            *("user: hello", "model: done +1", "tool: [not started: it was not run]"),
            "user: steer",
        ]
    assert brief(grown.messages()) == ["user: hello"]
    assert brief(grown.messages((), (steer,))) == ["user: hello"], "it knows no such message"


def test_a_call_is_found_while_its_step_is_the_newest() -> None:
    story = Story().go(*CLAIMED, responded(calls=1, arguments='{"command":"ls"}'))
    call = story.call(0).call_id
    found = transcript(story).call(call)
    assert found is not None
    assert (found.name, found.arguments) == ("cli", '{"command":"ls"}')
    assert transcript(story).call(CallId("another")) is None
    story.go(requested(0), tool_started(0), tool_finished(0), step_finished(), step_started())
    assert transcript(story).call(call) is None


def test_an_answer_is_its_inline_text_alone() -> None:
    assert answer_text((TextPart(text="a"), ThinkingPart(text="b"), TextPart(text="c"))) == "ac"
    assert answer_text((TextPart(text=BLOB),)) == ""
    assert answer_text((object(),)) == ""
