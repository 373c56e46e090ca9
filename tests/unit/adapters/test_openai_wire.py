"""Requests in the form of OpenAI's completions endpoint: exact, deterministic, accepted."""

import json
from dataclasses import replace

import pytest
from hypothesis import given

from tests.helpers.model_messages import (
    ANTHROPIC,
    CLI,
    OPENAI,
    PDF,
    PNG,
    answer,
    blob,
    call,
    request_of,
    requests,
    result,
    user,
)
from tests.helpers.wire_validators import Json, WireError, validate_completions, validate_messages
from threadlog.adapters.model_api import anthropic_wire, openai_wire
from threadlog.adapters.model_api.asked_model import model_name
from threadlog.adapters.model_api.neutral import wire_call_id
from threadlog.adapters.model_api.openai_wire import Dialect, dialect_of, render
from threadlog.events.content import (
    BlobRef,
    FilePart,
    ImagePart,
    NativePart,
    TextPart,
    ThinkingPart,
)
from threadlog.ports.model import ModelRequest
from threadlog.thread.messages import AssistantMessage, UserMessage


def rendered(request: ModelRequest) -> list[Json]:
    messages = validate_completions(render(request))["messages"]
    assert isinstance(messages, list)
    return messages


def test_the_bytes_of_version_1_never_change() -> None:
    first = call(1)
    request = replace(
        request_of(user("hi"), answer("", "openai", first), result(first), answer("done")),
        thinking="low",
        output_tokens_max=100,
    )
    assert render(request) == (
        b'{"model":"gpt-test","messages":[{"role":"system","content":"Be brief."},'
        b'{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":['
        b'{"id":"call_4ccd462f24b85f5eb95498030dad585c","type":"function","function":'
        b'{"name":"cli","arguments":"{\\"command\\":\\"ls\\"}"}}]},{"role":"tool",'
        b'"tool_call_id":"call_4ccd462f24b85f5eb95498030dad585c","content":"ok"},'
        b'{"role":"assistant","content":"done"}],"tools":[{"type":"function","function":'
        b'{"name":"cli","description":"Run a command line.","parameters":{"properties":'
        b'{"command":{"type":"string"}},"required":["command"],"type":"object"}}}],'
        b'"reasoning_effort":"low","max_tokens":100,"stream":true,'
        b'"stream_options":{"include_usage":true}}'
    )


@given(requests())
def test_F20_any_transcript_is_accepted_in_both_wire_forms(request: ModelRequest) -> None:
    validate_completions(render(replace(request, model=OPENAI)))
    validate_messages(anthropic_wire.render(replace(request, model=ANTHROPIC)))


@given(requests())
def test_equal_requests_give_equal_bytes(request: ModelRequest) -> None:
    again = replace(request, blobs=dict(reversed(list(request.blobs.items()))))
    assert render(request) == render(again)
    assert anthropic_wire.render(request) == anthropic_wire.render(again)


def test_F20_text_image_and_file_reach_both_providers() -> None:
    image, pdf, note = (
        blob(PNG, "image/png"),
        blob(PDF, "application/pdf"),
        blob(b"1,2", "text/csv"),
    )
    parts = (
        TextPart(text="look"),
        ImagePart(blob=image),
        FilePart(name="a.pdf", blob=pdf),
        FilePart(name="n.csv", blob=note),
    )
    request = replace(
        request_of(UserMessage(parts)),
        blobs={image.sha256: PNG, pdf.sha256: PDF, note.sha256: b"1,2"},
    )
    content = rendered(request)[1]["content"]
    assert isinstance(content, list)
    assert [part["type"] for part in content] == ["text", "image_url", "file", "text"]
    assert content[1]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert content[3]["text"] == '[file "n.csv", text/csv, 3 bytes]\n1,2'
    messages = validate_messages(anthropic_wire.render(request))["messages"]
    assert isinstance(messages, list)
    kinds = [block["type"] for block in messages[0]["content"]]
    assert kinds == ["text", "image", "document", "text"]


def test_F20_own_thinking_and_native_members_go_back_verbatim() -> None:
    native = '{"reasoning_details": [ {"type": "x", "n": 1.50} ]}'
    parts = (
        ThinkingPart(text="  hm\n"),
        TextPart(text="yes"),
        NativePart(provider="openai", json_text=native),
    )
    own = request_of(user("?"), AssistantMessage(parts, (), "openai"), user("go"))
    assert rendered(own)[2]["reasoning_content"] == "  hm\n"
    assert native[1:-1].encode() in render(own)


@pytest.mark.parametrize("text", [" \n", blob(b"gone", "text/plain")])
def test_thinking_that_is_blank_or_gone_is_left_out(text: str | BlobRef) -> None:
    parts = (ThinkingPart(text=text), TextPart(text="yes"))
    request = request_of(user("?"), AssistantMessage(parts, (), "openai"), user("go"))
    assert rendered(request)[2] == {"role": "assistant", "content": "yes"}


def test_F20_another_providers_thinking_and_native_blocks_are_not_shown() -> None:
    parts = (
        ThinkingPart(text="secret", signature="s"),
        TextPart(text="yes"),
        NativePart(provider="anthropic", json_text='{"type":"redacted_thinking","data":"d"}'),
    )
    request = request_of(user("?"), AssistantMessage(parts, (), "anthropic"), user("go"))
    assert rendered(request)[2] == {"role": "assistant", "content": "yes"}


@pytest.mark.parametrize("json_text", ["[1]", "{", '{"role":"system"}', '{"content":"x"}', "{}"])
def test_a_native_block_that_is_no_member_of_its_own_is_left_out(json_text: str) -> None:
    parts = (TextPart(text="yes"), NativePart(provider="openai", json_text=json_text))
    request = request_of(user("?"), AssistantMessage(parts, (), "openai"), user("go"))
    assert rendered(request)[2] == {"role": "assistant", "content": "yes"}


def test_what_cannot_be_loaded_is_said_to_be_unavailable() -> None:
    gone = blob(PNG, "image/png")
    parts = (TextPart(text=gone), ImagePart(blob=gone), FilePart(name="f", blob=gone))
    content = rendered(request_of(UserMessage(parts)))[1]["content"]
    assert isinstance(content, str)
    assert content.count("[unavailable: ") == 3
    assert gone.sha256 in content


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"command": "ls" }', '{"command": "ls" }'),
        ("", "{}"),
        ('{"command": "l', '{"_invalid":"{\\"command\\": \\"l"}'),
        ("ls", '{"_invalid":"ls"}'),
        ('"{}"', '{"_invalid":"\\"{}\\""}'),
        ("[]", '{"_invalid":"[]"}'),
    ],
)
def test_C63_arguments_that_are_no_object_are_rendered_as_one(
    arguments: str, expected: str
) -> None:
    bad = call(1, arguments)
    request = request_of(user("?"), answer("", "openai", bad), result(bad))
    calls = rendered(request)[2]["tool_calls"]
    assert isinstance(calls, list)
    assert calls[0]["function"]["arguments"] == expected
    body = validate_messages(anthropic_wire.render(replace(request, model=ANTHROPIC)))
    messages = body["messages"]
    assert isinstance(messages, list)
    assert messages[1]["content"][0]["input"] == json.loads(expected)


def test_C64_call_ids_are_ours_and_names_are_made_fit() -> None:
    odd = call(1, name="no such\ntool" + "x" * 100)
    calls = rendered(request_of(user("?"), answer("", "openai", odd), result(odd)))[2]["tool_calls"]
    assert isinstance(calls, list)
    assert calls[0]["id"] == wire_call_id(odd.call_id) == "call_" + odd.call_id.replace("-", "")
    assert calls[0]["function"]["name"].startswith("no_such_tool")


def test_a_reply_that_broke_off_is_marked() -> None:
    cut = AssistantMessage((TextPart(text="and th"),), (), "openai", interrupted=True)
    silent = AssistantMessage((), (), "openai", interrupted=True)
    shown = rendered(request_of(user("?"), cut, user("no"), silent, user("go")))
    mark = "[interrupted: the reply was stopped here on request]"
    assert shown[2]["content"] == f"and th\n\n{mark}"
    assert shown[4]["content"] == mark


def test_every_assistant_message_is_rendered_so_that_they_can_be_counted() -> None:
    empty = AssistantMessage((ThinkingPart(text="x"),), (), "anthropic")
    assert [m["role"] for m in rendered(request_of(user("?"), empty, user("go")))] == [
        "system",
        "user",
        "assistant",
        "user",
    ]


def test_law_5_a_call_without_its_result_is_never_rendered() -> None:
    one, two = call(1), call(2)
    dangling = request_of(user("?"), answer("", "openai", one, two), result(one), user("go"))
    orphan = request_of(user("?"), result(one))
    twice = request_of(
        user("?"),
        answer("", "openai", one),
        result(one),
        answer("", "openai", one),
        result(one),
    )
    for wrong in (dangling, orphan, twice, request_of(answer("", "openai", one))):
        with pytest.raises(AssertionError):
            render(wrong)
        with pytest.raises(AssertionError):
            anthropic_wire.render(wrong)


@pytest.mark.parametrize("limits_completion", [False, True])
@pytest.mark.parametrize("asks_usage", [False, True])
def test_the_renderers_name_says_how_to_render_again(
    limits_completion: bool, asks_usage: bool
) -> None:
    dialect = Dialect(limits_completion=limits_completion, asks_usage=asks_usage)
    request = replace(request_of(user("?")), output_tokens_max=7)
    body = validate_completions(render(request, dialect))
    assert body["max_completion_tokens" if limits_completion else "max_tokens"] == 7
    assert ("stream_options" in body) == asks_usage
    assert dialect_of(dialect.renderer) == dialect
    assert dialect_of("anthropic-messages/1") is None


def test_the_models_name_is_read_from_the_body() -> None:
    name = 'a "quoted" \\ näme'
    request = request_of(user("?"), model=OPENAI.model_copy(update={"name": name}))
    assert model_name(render(request)) == name
    with pytest.raises(ValueError, match="not rendered here"):
        model_name(b"{}")


def test_without_tools_or_prompt_their_members_are_left_out() -> None:
    bare = replace(request_of(user("?")), tools=(), system_prompt=" ")
    assert set(validate_completions(render(bare))) == {
        "model",
        "messages",
        "stream",
        "stream_options",
    }
    assert openai_wire.RENDERER == Dialect().renderer == "openai-chat/1"


def body_with(*messages: Json) -> bytes:
    return json.dumps({"model": "m", "stream": True, "messages": messages}).encode()


CALL: Json = {"id": "a", "type": "function", "function": {"name": "cli", "arguments": "{}"}}
RESULT: Json = {"role": "tool", "tool_call_id": "a", "content": "ok"}


@pytest.mark.parametrize(
    "body",
    [
        body_with(),
        body_with({"role": "user", "content": ""}),
        body_with({"role": "user", "content": []}),
        body_with({"role": "user", "content": "x", "extra": 1}),
        body_with({"role": "assistant", "content": None}),
        body_with({"role": "assistant", "content": None, "tool_calls": [CALL]}),
        body_with(RESULT),
        body_with(
            {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]}, RESULT, RESULT
        ),
        body_with({"role": "user", "content": "x"}, {"role": "system", "content": "late"}),
        body_with({"role": "owner", "content": "x"}),
        b'{"model":"m","model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}',
    ],
)
def test_the_stand_in_refuses_what_the_provider_refuses(body: bytes) -> None:
    with pytest.raises(WireError):
        validate_completions(body)


def test_a_tool_of_another_name_keeps_its_schema() -> None:
    tool = replace(CLI, name="other")
    tools = validate_completions(render(replace(request_of(user("?")), tools=(tool,))))["tools"]
    assert isinstance(tools, list)
    assert tools[0]["function"]["parameters"] == json.loads(CLI.parameters)
