"""Requests in the form of Anthropic's messages endpoint: exact, and what it alone demands."""

import json
from dataclasses import replace

import pytest

from tests.helpers.model_messages import ANTHROPIC, answer, call, request_of, result, user
from tests.helpers.wire_validators import Json, WireError, validate_messages
from threadlog.adapters.model_api.anthropic_wire import render
from threadlog.events.content import NativePart, TextPart, ThinkingPart
from threadlog.events.thread import ThinkingLevel
from threadlog.ports.model import ModelRequest
from threadlog.thread.messages import AssistantMessage, Message

SIGNED = ThinkingPart(text=" hm\n", signature="sig==")


def claude(*messages: Message) -> ModelRequest:
    return request_of(*messages, model=ANTHROPIC)


def rendered(request: ModelRequest) -> list[tuple[str, list[Json]]]:
    messages = validate_messages(render(request))["messages"]
    assert isinstance(messages, list)
    return [(message["role"], message["content"]) for message in messages]


def test_the_bytes_of_version_1_never_change() -> None:
    first = call(1)
    request = claude(user("hi"), answer("", "anthropic", first), result(first), user("and?"))
    assert render(replace(request, thinking="none", output_tokens_max=100)) == (
        b'{"model":"claude-test","max_tokens":100,"system":"Be brief.","tools":[{"name":"cli",'
        b'"description":"Run a command line.","input_schema":{"properties":{"command":'
        b'{"type":"string"}},"required":["command"],"type":"object"}}],"messages":['
        b'{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":['
        b'{"type":"tool_use","id":"call_4ccd462f24b85f5eb95498030dad585c","name":"cli","input":{"command":"ls"}}]},'
        b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_4ccd462f24b85f5eb95498030dad585c",'
        b'"content":"ok"},{"type":"text","text":"and?"}]}],"stream":true}'
    )


def test_F20_own_thinking_goes_back_signed_and_native_blocks_verbatim() -> None:
    native = '{"type":"redacted_thinking", "data":"d"}'
    parts = (SIGNED, NativePart(provider="anthropic", json_text=native), TextPart(text="yes"))
    request = claude(user("?"), AssistantMessage(parts, (), "anthropic"), user("go"))
    assert native.encode() in render(request)
    assert rendered(request)[1] == (
        "assistant",
        [
            {"type": "thinking", "thinking": " hm\n", "signature": "sig=="},
            {"type": "redacted_thinking", "data": "d"},
            {"type": "text", "text": "yes"},
        ],
    )


@pytest.mark.parametrize(
    ("provider", "part"),
    [("openai", SIGNED), ("anthropic", ThinkingPart(text="hm")), ("scripted", SIGNED)],
)
def test_F20_thinking_of_others_or_without_signature_is_not_shown(
    provider: str, part: ThinkingPart
) -> None:
    message = AssistantMessage((part, TextPart(text="yes")), (), provider)
    request = claude(user("?"), message, user("go"))
    assert rendered(request)[1] == ("assistant", [{"type": "text", "text": "yes"}])


def test_neighbours_of_one_role_become_one_message_with_results_in_front() -> None:
    one, two = call(1), call(2)
    cut = AssistantMessage((TextPart(text="so"),), (), "anthropic", interrupted=True)
    shown = rendered(
        claude(
            user("a"),
            user("b"),
            cut,
            answer("then", "anthropic", one, two),
            result(two),
            result(one),
            user("c"),
        )
    )
    assert [(role, [block["type"] for block in blocks]) for role, blocks in shown] == [
        ("user", ["text", "text"]),
        ("assistant", ["text", "text", "text", "tool_use", "tool_use"]),
        ("user", ["tool_result", "tool_result", "text"]),
    ]


def test_a_thread_that_begins_or_ends_with_the_model_is_framed_by_the_user() -> None:
    assert [role for role, _ in rendered(claude(answer("hi")))] == ["user", "assistant", "user"]
    assert [role for role, _ in rendered(claude())] == ["user"]


def test_an_error_is_marked_as_one() -> None:
    one = call(1)
    failed = replace(result(one, ""), is_error=True)
    block = rendered(claude(user("?"), answer("", "anthropic", one), failed))[2][1][0]
    assert block["is_error"] is True
    assert block["content"] == "[no output]"


@pytest.mark.parametrize(
    ("level", "limit", "budget"),
    [
        (None, None, None),
        ("none", None, None),
        ("low", None, 2_048),
        ("high", None, 12_288),
        ("high", 4_096, 3_072),
        ("high", 2_000, None),
    ],
)
def test_thinking_fits_below_the_limit(
    level: ThinkingLevel | None, limit: int | None, budget: int | None
) -> None:
    request = replace(claude(user("?")), thinking=level, output_tokens_max=limit)
    body = validate_messages(render(request))
    expected = None if budget is None else {"type": "enabled", "budget_tokens": budget}
    assert body.get("thinking") == expected


def test_no_thinking_is_asked_for_between_a_foreign_call_and_its_answer() -> None:
    one = call(1)
    foreign = claude(user("?"), answer("", "openai", one), result(one))
    own = claude(user("?"), AssistantMessage((SIGNED,), (one,), "anthropic"), result(one))
    redacted = NativePart(provider="anthropic", json_text='{"type":"redacted_thinking","data":"d"}')
    hidden = claude(user("?"), AssistantMessage((redacted,), (one,), "anthropic"), result(one))
    thinks = [
        "thinking" in validate_messages(render(replace(request, thinking="low")))
        for request in (foreign, own, hidden)
    ]
    assert thinks == [False, True, True]


def test_calls_of_the_past_keep_a_tool_when_none_is_allowed_any_more() -> None:
    one = call(1)
    request = replace(claude(user("?"), answer("", "openai", one), result(one)), tools=())
    body = validate_messages(render(request))
    assert body["tools"] == [{"name": "cli", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}
    assert "tools" not in validate_messages(render(replace(claude(user("?")), tools=())))


def body_with(*messages: Json, **members: object) -> bytes:
    tools = [{"name": "cli", "input_schema": {}}]
    body = {"model": "m", "max_tokens": 9, "tools": tools, "messages": messages}
    return json.dumps(body | members).encode()


ASK: Json = {"role": "user", "content": [{"type": "text", "text": "x"}]}
USE: Json = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "a", "name": "cli", "input": {}}],
}
DONE: Json = {
    "role": "user",
    "content": [{"type": "tool_result", "tool_use_id": "a", "content": "ok"}],
}


@pytest.mark.parametrize(
    "body",
    [
        body_with(),
        body_with(ASK, ASK),
        body_with(USE, DONE),
        body_with(ASK, USE),
        body_with(ASK, USE, ASK),
        body_with(DONE),
        body_with(ASK, USE, DONE, USE, DONE),
        body_with(ASK, {"role": "assistant", "content": []}, ASK),
        body_with({"role": "user", "content": [{"type": "text", "text": " "}]}),
        body_with({"role": "user", "content": [{"type": "text", "text": "x", "extra": 1}]}),
        body_with(ASK, max_tokens=0),
        body_with(ASK, max_tokens=None),
        body_with(ASK, stream=False),
        body_with(ASK, temperature_of_room=20),
        body_with(ASK, tool_choice={"type": "any thing"}),
        body_with(ASK, thinking={"type": "enabled", "budget_tokens": 2_048}),
        body_with(
            ASK, USE, DONE, max_tokens=9_000, thinking={"type": "enabled", "budget_tokens": 2_048}
        ),
    ],
)
def test_the_stand_in_refuses_what_the_provider_refuses(body: bytes) -> None:
    with pytest.raises(WireError):
        validate_messages(body)


def test_the_stand_in_accepts_what_the_provider_accepts() -> None:
    validate_messages(body_with(ASK, USE, DONE))
