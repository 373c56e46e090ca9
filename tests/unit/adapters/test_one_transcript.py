"""One transcript with everything in it, rendered for both providers: each would accept it."""

import json
from dataclasses import replace

import pytest

from tests.helpers.model_messages import ANTHROPIC, OPENAI, call, request_of, result, user
from tests.helpers.wire_validators import Json, WireError, validate_completions, validate_messages
from threadlog.adapters.model_api import anthropic_wire, openai_wire
from threadlog.adapters.model_api.neutral import INTERRUPTED
from threadlog.events.content import ModelRef, NativePart, TextPart, ThinkingPart
from threadlog.ports.model import ModelRequest
from threadlog.thread.messages import AssistantMessage, Message

ONE, TWO = call(1), call(2, '{"command": "l')  # the second was cut short: its text is no JSON
BLOCKS = {
    "anthropic": '{"type":"redacted_thinking","data":"d"}',
    "openai": '{"reasoning_details":[{"type":"x"}]}',
}


def transcript(provider: str) -> tuple[Message, ...]:
    """Asked, answered with thinking and two calls, interrupted in mid-text, and steered."""
    answered = AssistantMessage(
        (
            ThinkingPart(text="hm", signature="sig=="),
            NativePart(provider=provider, json_text=BLOCKS[provider]),
            TextPart(text="I look."),
        ),
        (ONE, TWO),
        provider,
    )
    failed = replace(result(TWO, "no such command"), is_error=True)
    broken_off = AssistantMessage((TextPart(text="So it"),), (), provider, interrupted=True)
    steered = user("Stop, look at the other file.")
    return user("Look around."), answered, result(ONE), failed, broken_off, steered


def asked(of: ModelRef, provider: str) -> ModelRequest:
    return replace(request_of(*transcript(provider), model=of), thinking="low")


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_F20_both_providers_accept_it_whoever_answered_it(provider: str) -> None:
    completions = validate_completions(openai_wire.render(asked(OPENAI, provider)))
    messages = validate_messages(anthropic_wire.render(asked(ANTHROPIC, provider)))
    shown, shown_too = json.dumps(completions["messages"]), json.dumps(messages["messages"])
    for text in ("Look around.", "I look.", "no such command", "So it", INTERRUPTED, "Stop, look"):
        assert text in shown
        assert text in shown_too
    assert ("reasoning_details" in shown) == (provider == "openai")
    assert ("redacted_thinking" in shown_too) == (provider == "anthropic")
    assert ("sig==" in shown_too) == (provider == "anthropic")
    assert "sig==" not in shown


def test_the_stand_ins_refuse_it_once_a_result_is_gone() -> None:
    completions = json.loads(openai_wire.render(asked(OPENAI, "openai")))
    messages = json.loads(anthropic_wire.render(asked(ANTHROPIC, "anthropic")))
    completions["messages"] = [m for m in completions["messages"] if not of_call(m, "tool_call_id")]
    for message in messages["messages"]:
        message["content"] = [b for b in message["content"] if not of_call(b, "tool_use_id")]
    with pytest.raises(WireError, match="calls without results"):
        validate_completions(json.dumps(completions).encode())
    with pytest.raises(WireError, match="results"):
        validate_messages(json.dumps(messages).encode())


def of_call(value: Json, member: str) -> bool:
    return value.get(member) == f"call_{TWO.call_id.replace('-', '')}"
