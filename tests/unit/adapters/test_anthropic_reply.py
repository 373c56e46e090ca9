"""Replies of Anthropic's messages endpoint, however cut, and what is kept of each block."""

import json
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.messages_server import event
from threadlog import limits
from threadlog.adapters.model_api.anthropic_reply import ReplyReader
from threadlog.errors import ModelError
from threadlog.events.content import ModelRef, NativePart, OutputPart, TextPart, ThinkingPart, Usage
from threadlog.ports.model import Delta, ModelReply

Json = dict[str, object]
MODEL = ModelRef(provider="anthropic", name="asked")
REDACTED: Json = {"type": "redacted_thinking", "data": "é=="}


def read(*chunks: bytes, deltas: list[Delta] | None = None) -> ModelReply:
    seen: list[Delta] = [] if deltas is None else deltas
    reader = ReplyReader(MODEL, seen.append)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish()


def read_on(reader: ReplyReader, chunk: bytes, times: int) -> None:
    for _ in range(times):
        reader.feed(chunk)


def failed(*chunks: bytes) -> ModelError:
    with pytest.raises(ModelError) as failure:
        read(*chunks)
    return failure.value


def begun(index: object, **block: object) -> bytes:
    return event("content_block_start", index=index, content_block=block)


def piece(index: object, **delta: object) -> bytes:
    return event("content_block_delta", index=index, delta=delta)


def use(index: int, name: str, *arguments: str, provider_id: str = "toolu_1") -> bytes:
    start = begun(index, type="tool_use", id=provider_id, name=name, input={})
    parts = [piece(index, type="input_json_delta", partial_json=text) for text in arguments]
    return b"".join([start, *parts, event("content_block_stop", index=index)])


def text(index: int, *pieces: str) -> bytes:
    parts = [piece(index, type="text_delta", text=part) for part in pieces]
    return b"".join([begun(index, type="text", text=""), *parts])


def ended(reason: str = "end_turn", **usage: object) -> bytes:
    return event("message_delta", delta={"stop_reason": reason}, usage=usage)


START = event("message_start", message={"model": "real", "usage": {"input_tokens": 7}})
STOP = event("message_stop")
THOUGHT = (
    begun(0, type="thinking", thinking="", signature="")
    + piece(0, type="thinking_delta", thinking=" hm")
    + piece(0, type="thinking_delta", thinking="\n")
    + piece(0, type="signature_delta", signature="si")
    + piece(0, type="signature_delta", signature="g==")
)
FULL = b"".join(
    [
        START,
        THOUGHT,
        begun(1, **REDACTED),
        text(2, "Grü", "ße 🎉"),
        use(3, "cli", "", '{"com', 'mand":"ls"}'),
        ended("tool_use", output_tokens=9),
        STOP,
    ]
)


def test_a_stream_becomes_one_reply() -> None:
    deltas: list[Delta] = []
    reply = read(FULL, deltas=deltas)
    assert reply.content == (
        ThinkingPart(text=" hm\n", signature="sig=="),
        NativePart(provider="anthropic", json_text='{"type":"redacted_thinking","data":"é=="}'),
        TextPart(text="Grüße 🎉"),
    )
    [call] = reply.calls
    assert (call.provider_call_id, call.name, call.arguments) == (
        "toolu_1", "cli", '{"command":"ls"}'
    )  # fmt: skip
    assert (reply.stop, reply.model.name) == ("calls", "real")
    assert reply.usage == Usage(input=7, output=9)
    assert "".join(delta.text for delta in deltas) == " hm\nGrüße 🎉"
    assert [delta.kind for delta in deltas] == ["thinking", "thinking", "text", "text"]


@given(st.lists(st.integers(0, len(FULL)), max_size=6))
def test_it_does_not_matter_where_the_bytes_are_cut(places: list[int]) -> None:
    edges = [0, *sorted(places), len(FULL)]
    chunks = [FULL[a:b] for a, b in pairwise(edges)]
    assert read(*chunks) == read(FULL)


def test_a_reply_that_is_not_streamed_reads_alike() -> None:
    content = [
        {"type": "thinking", "thinking": " hm\n", "signature": "sig=="},
        REDACTED,
        {"type": "text", "text": "Grüße 🎉"},
        {"type": "tool_use", "id": "toolu_1", "name": "cli", "input": {"command": "ls"}},
    ]
    usage = {"input_tokens": 7, "output_tokens": 9}
    body = {"type": "message", "model": "real", "content": content, "stop_reason": "tool_use"}
    reply, streamed = read(json.dumps(body | {"usage": usage}).encode()), read(FULL)
    assert (reply.content[0], reply.content[2]) == (streamed.content[0], streamed.content[2])
    kept = [part for part in reply.content if isinstance(part, NativePart)]
    assert [json.loads(str(part.json_text)) for part in kept] == [REDACTED]
    assert json.loads(str(reply.calls[0].arguments)) == {"command": "ls"}
    assert (reply.stop, reply.usage, reply.model) == ("calls", streamed.usage, streamed.model)


@pytest.mark.parametrize(
    ("reason", "stop", "beside_calls"),
    [
        ("end_turn", "end", "calls"),
        ("stop_sequence", "end", "calls"),
        ("tool_use", "end", "calls"),
        ("max_tokens", "length", "length"),
        ("model_context_window_exceeded", "length", "length"),
        ("refusal", "refusal", "refusal"),
        ("pause_turn", "other", "calls"),
        ("something_new", "other", "calls"),
    ],
)
def test_C65_stop_reasons_mean_what_the_calls_say(
    reason: str, stop: str, beside_calls: str
) -> None:
    assert read(START, text(0, "x"), ended(reason), STOP).stop == stop
    assert read(START, text(0, "x"), use(1, "cli"), ended(reason), STOP).stop == beside_calls


def test_C63_calls_interleaved_with_text_keep_their_order_and_their_text() -> None:
    stream = (
        text(0, "one") + use(1, "a", '{"x": 1.0', "0}", provider_id="t1") + text(2, "two")
        + use(3, "b", '{"y": "cut', provider_id="t2")
    )  # fmt: skip
    reply = read(START, stream, ended("max_tokens"))
    assert reply.content == (TextPart(text="one"), TextPart(text="two"))
    assert [(c.provider_call_id, c.name, c.arguments) for c in reply.calls] == [
        ("t1", "a", '{"x": 1.00}'),
        ("t2", "b", '{"y": "cut'),
    ]


def test_C64_pieces_that_arrive_across_blocks_find_their_own() -> None:
    stream = b"".join(
        [
            begun(0, type="tool_use", id="t1", name="a", input={}),
            begun(1, type="tool_use", id="t1", name="b", input={}),
            piece(1, type="input_json_delta", partial_json='{"b"'),
            piece(0, type="input_json_delta", partial_json='{"a"'),
            piece(1, type="input_json_delta", partial_json=":1}"),
            piece(0, type="input_json_delta", partial_json=":1}"),
        ]
    )
    calls = read(START, stream, ended("tool_use")).calls
    assert [call.arguments for call in calls] == ['{"a":1}', '{"b":1}']
    assert [call.provider_call_id for call in calls] == ["t1", "t1"]


def test_a_call_without_pieces_has_what_it_began_with() -> None:
    whole = begun(0, type="tool_use", id="t", name="a", input={"x": 1})
    calls = read(START, whole, use(1, "b"), ended("tool_use")).calls
    assert [call.arguments for call in calls] == ['{"x":1}', "{}"]


def test_F20_thinking_that_is_not_shown_keeps_its_signature() -> None:
    hidden = begun(0, type="thinking", thinking="") + piece(
        0, type="signature_delta", signature="sig"
    )
    reply = read(START, hidden, text(1, "x"), ended())
    assert reply.content == (ThinkingPart(text="", signature="sig"), TextPart(text="x"))


def native(*stream: bytes) -> object:
    """The JSON of the one foreign block in `stream`."""
    reply = read(START, *stream, text(9, "x"), ended())
    [part] = [part for part in reply.content if isinstance(part, NativePart)]
    return json.loads(str(part.json_text))


def test_the_pieces_of_a_foreign_block_are_put_in_their_place() -> None:
    searching = begun(0, type="server_tool_use", id="s", name="web", input={})
    asked = [piece(0, type="input_json_delta", partial_json=part) for part in ("", '{"q":', "1}")]
    assert native(searching, *asked) == {
        "type": "server_tool_use", "id": "s", "name": "web", "input": {"q": 1}
    }  # fmt: skip
    summary = begun(0, type="compaction", content=None)
    told = [piece(0, type="compaction_delta", content=part) for part in ("so ", "far")]
    assert native(summary, *told) == {"type": "compaction", "content": "so far"}


def test_a_foreign_block_whose_pieces_fit_nowhere_is_kept_as_the_list_of_them() -> None:
    block: Json = {"type": "sketch", "lines": [1]}
    delta: Json = {"type": "sketch_delta", "lines": [2]}
    assert native(begun(0, **block), piece(0, **delta)) == [block, delta]


def test_what_a_later_version_adds_to_known_blocks_is_passed_over() -> None:
    cited = piece(0, type="citations_delta", citation={"cited_text": "x"})
    reply = read(START, text(0, "a"), cited, piece(0, type="text_delta", text="b"), ended())
    assert reply.content == (TextPart(text="ab"),)


@pytest.mark.parametrize(
    ("stream", "error_class"),
    [
        (b"plain text", "malformed"),
        (b"[1]", "malformed"),
        (START + b"data: {nonsense\n\n", "malformed"),
        (START + b"data: 7\n\n", "malformed"),
        (START + piece(4, type="text_delta", text="x"), "malformed"),
        (START + begun(0, text="x"), "malformed"),
        (START + event("content_block_start", index=0), "malformed"),
        (START + use(0, "x" * (limits.TOOL_NAME_CHARS_MAX + 1)), "malformed"),
        (START + use(0, "a", provider_id="i" * 10_000), "malformed"),
        (START, "cut_stream"),
        (START + text(0, "x"), "cut_stream"),
        (START + ended() + STOP, "empty"),
        (START + text(0, " \n") + ended() + STOP, "empty"),
        (START + THOUGHT + ended() + STOP, "empty"),
        (START + begun(0, **REDACTED) + ended() + STOP, "empty"),
        (event("error", error={"type": "api_error", "message": "oh"}), "internal"),
        (b'{"type":"error","error":{"type":"rate_limit_error"}}', "rate_limited"),
    ],
)
def test_what_is_no_reply_fails_with_its_class(stream: bytes, error_class: str) -> None:
    assert failed(stream).error_class == error_class


def test_a_block_nested_beyond_reason_is_malformed() -> None:
    deep = b"[" * 5_000 + b"]" * 5_000
    block = b'{"type":"content_block_start","index":0,"content_block":{"type":"x","d":%b}}' % deep
    assert failed(START + b"data: " + block + b"\n\n").error_class == "malformed"


@pytest.mark.parametrize(("reason", "stop"), [("max_tokens", "length"), ("refusal", "refusal")])
def test_a_reply_that_was_stopped_before_its_first_word_counts(reason: str, stop: str) -> None:
    reply = read(START, ended(reason), STOP)
    assert (reply.content, reply.stop) == ((), stop)


def test_a_turn_that_pauses_on_a_foreign_block_counts() -> None:
    reply = read(START, begun(0, type="server_tool_use", id="s"), ended("pause_turn"), STOP)
    parts: tuple[OutputPart, ...] = reply.content
    assert (reply.stop, len(parts)) == ("other", 1)


def test_C64_more_calls_or_blocks_than_a_step_may_have_are_too_large() -> None:
    most = b"".join(use(n, "a") for n in range(limits.CALLS_PER_STEP_MAX))
    assert len(read(START, most, ended("tool_use")).calls) == limits.CALLS_PER_STEP_MAX
    assert failed(START, most, use(99, "a")).error_class == "too_large"
    texts = b"".join(text(n, "x") for n in range(limits.REPLY_PARTS_MAX))
    reply = read(START, most, texts, ended())
    assert len(reply.content) == limits.REPLY_PARTS_MAX
    assert failed(START, most, texts, text(999, "x")).error_class == "too_large"


def test_C64_a_signature_that_no_event_may_hold_is_too_large() -> None:
    part = piece(0, type="signature_delta", signature="s" * limits.SIGNATURE_CHARS_MAX)
    thinking = begun(0, type="thinking", thinking="hm")
    assert read(START, thinking, part, text(1, "x"), ended()).content
    more = piece(0, type="signature_delta", signature="s")
    assert failed(START, thinking, part, more, text(1, "x"), ended()).error_class == "too_large"


def test_C66_content_of_every_kind_is_cut_at_the_decoded_size_cap() -> None:
    long = "x" * (limits.REPLY_BYTES_MAX // 4)
    for block, delta in (
        ({"type": "text"}, {"type": "text_delta", "text": long}),
        ({"type": "thinking"}, {"type": "signature_delta", "signature": long}),
        ({"type": "tool_use"}, {"type": "input_json_delta", "partial_json": long}),
        ({"type": "sketch"}, {"type": "sketch_delta", "strokes": long}),
    ):
        reader = ReplyReader(MODEL, lambda delta: None)
        reader.feed(START + begun(0, **block))
        with pytest.raises(ModelError, match="was cut") as failure:
            read_on(reader, piece(0, **delta), 5)
        assert failure.value.error_class == "too_large"


@pytest.mark.parametrize(
    ("at_start", "at_end", "expected"),
    [
        ({}, {}, None),
        ({"input_tokens": None}, {"output_tokens": "9"}, None),
        ({"input_tokens": 5}, {}, Usage(input=5)),
        (
            {"input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": 2},
            {"output_tokens": 9, "cache_creation_input_tokens": 3},
            Usage(input=5, output=9, cache_read=2, cache_write=3),
        ),
        (
            {"input_tokens": 0, "output_tokens": 0},
            {"input_tokens": 5, "output_tokens": 9, "cache_read_input_tokens": None},
            Usage(input=5, output=9),
        ),
        (
            {"input_tokens": 5},
            {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}},
            Usage(input=5, output=9, reasoning=4),
        ),
        ({"input_tokens": 5}, {"output_tokens": 2**60}, Usage(input=5)),
    ],
)
def test_F18_tokens_are_billed_by_kind_once(
    at_start: Mapping[str, object], at_end: dict[str, object], expected: Usage | None
) -> None:
    start = event("message_start", message={"usage": at_start})
    half = ended("end_turn", **at_end)
    assert read(start, text(0, "x"), half, STOP).usage == expected
    assert read(start, text(0, "x"), half, half, STOP).usage == expected
