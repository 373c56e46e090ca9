"""Replies of OpenAI's completions endpoint, and what foreign servers make of it."""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadlog import limits
from threadlog.adapters.model_api.openai_reply import ReplyReader
from threadlog.errors import ModelError
from threadlog.events.content import ModelRef, NativePart, TextPart, ThinkingPart, Usage
from threadlog.events.step import ModelCall, StopReason
from threadlog.ports.model import Delta, ModelReply

MODEL = ModelRef(provider="openai", name="asked")
DONE = b"data: [DONE]\n\n"
Json = dict[str, object]


def read(*chunks: bytes, deltas: list[Delta] | None = None) -> ModelReply:
    seen: list[Delta] = [] if deltas is None else deltas
    reader = ReplyReader(MODEL, seen.append)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish()


def read_on(reader: ReplyReader, chunk: bytes, times: int) -> None:
    for _ in range(times):
        reader.feed(chunk)


def event(delta: Json, reason: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


def whole(message: Json, reason: str | None = "stop", **more: object) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return json.dumps({"choices": [choice], **more}).encode()


def piece(index: object, provider_id: str | None, name: str | None, arguments: object) -> Json:
    return {"index": index, "id": provider_id, "function": {"name": name, "arguments": arguments}}


def calls_of(*pieces: Json) -> list[tuple[str, str, object]]:
    chunks = [event({"tool_calls": [item]}) for item in pieces]
    reply = read(*chunks, event({}, "tool_calls"), DONE)
    return [(call.provider_call_id, call.name, call.arguments) for call in reply.calls]


STREAM = b"".join(
    [
        event({"role": "assistant", "content": ""}, model="gpt-real"),
        event({"reasoning_content": "hm "}),
        event({"reasoning_content": "hm"}),
        event({"content": "Grüße 🎉 "}),
        event({"content": "you"}),
        event({"tool_calls": [piece(0, "call_a", "cli", "")]}),
        event({"tool_calls": [piece(1, "call_b", "cli", '{"b":2}')]}),
        event({"tool_calls": [piece(0, None, None, '{"a":')]}),
        event({"tool_calls": [piece(0, None, None, "1}")]}),
        event({}, "tool_calls"),
        b'data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,'
        b'"prompt_tokens_details":{"cached_tokens":4},'
        b'"completion_tokens_details":{"reasoning_tokens":2}}}\n\n',
        DONE,
    ]
)
REPLY = ModelReply(
    content=(ThinkingPart(text="hm hm"), TextPart(text="Grüße 🎉 you")),
    calls=(
        ModelCall(provider_call_id="call_a", name="cli", arguments='{"a":1}'),
        ModelCall(provider_call_id="call_b", name="cli", arguments='{"b":2}'),
    ),
    stop="calls",
    usage=Usage(input=6, output=5, cache_read=4, reasoning=2),
    model=ModelRef(provider="openai", name="gpt-real"),
)


def test_a_stream_becomes_one_reply() -> None:
    deltas: list[Delta] = []
    assert read(STREAM, deltas=deltas) == REPLY
    assert "".join(d.text for d in deltas if d.kind == "text") == "Grüße 🎉 you"
    assert "".join(d.text for d in deltas if d.kind == "thinking") == "hm hm"


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_it_does_not_matter_where_the_bytes_are_cut(places: list[int]) -> None:
    edges = [0, *sorted(places), len(STREAM)]
    assert read(*(STREAM[a:b] for a, b in pairwise(edges))) == REPLY


@pytest.mark.parametrize(
    "stream",
    [
        STREAM.replace(b"\n", b"\r\n"),
        STREAM.replace(b"\n\n", b"\n"),
        STREAM.replace(b"data: ", b"data:"),
        STREAM.replace(b"data: ", b": still here\n\nid: 7\nevent: message\nretry: 1\ndata: "),
        STREAM.removesuffix(DONE),
        STREAM + b"data: nothing that counts\n\n",
        b"\xef\xbb\xbf\n\n" + STREAM,
        STREAM[:-2],
        STREAM.replace(b'data: {"choices"', b'data: {\ndata: "choices"'),
    ],
    ids=[
        "crlf",
        "one-newline",
        "no-space",
        "fields",
        "no-done",
        "after-done",
        "bom",
        "no-end",
        "two-lines",
    ],
)
def test_events_are_read_however_they_are_framed(stream: bytes) -> None:
    assert read(stream) == REPLY


def test_a_reply_that_is_not_streamed_reads_alike() -> None:
    message: Json = {
        "role": "assistant",
        "content": "yes",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "cli", "arguments": "{}"}}
        ],
    }
    reply = read(whole(message, "tool_calls", usage=None, model="m2"))
    assert reply.content == (ThinkingPart(text="hm"), TextPart(text="yes"))
    assert reply.calls == (ModelCall(provider_call_id="a", name="cli", arguments="{}"),)
    assert (reply.stop, reply.usage, reply.model.name) == ("calls", None, "m2")


def test_everything_in_one_chunk_reads_alike() -> None:
    delta: Json = {"content": "yes", "tool_calls": [piece(0, "a", "cli", "{}")]}
    reply = read(event(delta, "stop") + DONE)
    assert reply.content == (TextPart(text="yes"),)
    assert len(reply.calls) == 1
    assert reply.stop == "calls"


@pytest.mark.parametrize(
    ("reason", "has_calls", "stop"),
    [
        ("stop", False, "end"),
        ("stop", True, "calls"),
        ("tool_calls", True, "calls"),
        ("tool_calls", False, "end"),
        ("function_call", True, "calls"),
        ("length", False, "length"),
        ("length", True, "length"),
        ("content_filter", False, "refusal"),
        ("eos", False, "other"),
        ("eos", True, "calls"),
    ],
)
def test_C65_stop_reasons_mean_what_the_calls_say(
    reason: str, has_calls: bool, stop: StopReason
) -> None:
    delta: Json = {"content": "x"}
    if has_calls:
        delta["tool_calls"] = [piece(0, "a", "cli", "{")]
    reply = read(event(delta), event({}, reason), DONE)
    assert reply.stop == stop


def test_C63_arguments_are_kept_as_the_model_wrote_them() -> None:
    for arguments in ('{"command": "l', "ls -l", '"{}"', ' {"a":1}\n', ""):
        assert calls_of(piece(0, "a", "cli", arguments)) == [("a", "cli", arguments)]


def test_C64_repeated_and_missing_ids_are_kept_apart() -> None:
    assert calls_of(piece(0, "x", "cli", "1"), piece(1, "x", "cli", "2")) == [
        ("x", "cli", "1"),
        ("x", "cli", "2"),
    ]
    assert calls_of(piece(0, None, "cli", "1"), piece(1, "", "cli", "2")) == [
        ("", "cli", "1"),
        ("", "cli", "2"),
    ]


@pytest.mark.parametrize(
    "pieces",
    [
        [piece(0, "a", "cli", "{}"), piece(0, "b", "cli", "[]")],
        [piece(None, "a", "cli", "{"), piece(None, None, None, "}"), piece(None, "b", "cli", "[]")],
        [piece(0, "a", "cli", "{"), piece(0, "a", "cli", "}"), piece(1, "b", "cli", "[]")],
        [piece(0, "a", "c", "{"), piece(0, None, "li", "}"), piece(1, "b", "cli", "[]")],
        [piece(0, "a", "cli", {}), piece(1, "b", "cli", [])],
        [piece(0, "a", "cli", None), piece(0, None, None, "{}"), piece(1, "b", "cli", "[]")],
    ],
    ids=["index-always-0", "no-index", "name-repeated", "name-in-pieces", "objects", "null"],
)
def test_calls_are_told_apart_as_foreign_servers_number_them(pieces: Sequence[Json]) -> None:
    assert calls_of(*pieces) == [("a", "cli", "{}"), ("b", "cli", "[]")]


@pytest.mark.parametrize("field", ["id", "name"])
def test_C64_an_id_of_10_kb_is_malformed(field: str) -> None:
    long = "x" * 10_000
    item = piece(0, long, "cli", "") if field == "id" else piece(0, "a", long, "")
    with pytest.raises(ModelError) as failure:
        calls_of(item)
    assert (failure.value.error_class, failure.value.retryable) == ("malformed", True)
    assert len(str(failure.value)) < 200


def test_C64_more_calls_than_a_step_may_have_are_too_large() -> None:
    pieces = [piece(n, str(n), "cli", "{}") for n in range(limits.CALLS_PER_STEP_MAX + 1)]
    assert len(calls_of(*pieces[:-1])) == limits.CALLS_PER_STEP_MAX
    with pytest.raises(ModelError) as failure:
        calls_of(*pieces)
    assert failure.value.error_class == "too_large"


def test_C64_kinds_that_alternate_without_end_are_too_large() -> None:
    """Else each change of kind becomes a part, and the event outgrows the log."""
    pair = event({"reasoning_content": "r", "content": "c"})
    most = [pair] * (limits.REPLY_PARTS_MAX // 2)
    assert len(read(*most, event({"content": "c"}, "stop")).content) == limits.REPLY_PARTS_MAX
    reader = ReplyReader(MODEL, lambda delta: None)
    read_on(reader, pair, len(most))
    with pytest.raises(ModelError) as failure:
        read_on(reader, pair, 15_000)
    assert (failure.value.error_class, failure.value.retryable) == ("too_large", False)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, None),
        ("12", None),
        ({"prompt_tokens": -1, "completion_tokens": True}, None),
        ({"prompt_tokens": 9, "completion_tokens": 3}, Usage(input=9, output=3)),
        (
            {"prompt_tokens": 9, "completion_tokens": 3, "prompt_cache_hit_tokens": 4},
            Usage(input=5, output=3, cache_read=4),
        ),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 99}},
            Usage(input=0, cache_read=9),
        ),
        (
            {
                "prompt_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3},
            },
            Usage(input=4, cache_read=2, cache_write=3),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 3,
                "total_tokens": 19,
                "completion_tokens_details": {"reasoning_tokens": 7},
            },
            Usage(input=9, output=10, reasoning=7),
        ),
    ],
)
def test_F18_tokens_are_billed_by_kind(usage: object, expected: Usage | None) -> None:
    assert read(whole({"content": "x"}, usage=usage)).usage == expected


def test_F18_usage_sent_again_and_again_is_counted_once() -> None:
    chunks = [
        event({"content": "x"}, usage={"prompt_tokens": 9, "completion_tokens": n}) for n in (1, 2)
    ]
    reply = read(*chunks, event({}, "stop", usage=None), DONE)
    assert reply.usage == Usage(input=9, output=2)


@pytest.mark.parametrize(
    ("body", "error_class"),
    [
        (b"", "empty"),
        (b" \n ", "empty"),
        (DONE, "empty"),
        (event({"content": " \n"}, "stop") + DONE, "empty"),
        (event({"reasoning_content": "hm"}, "stop") + DONE, "empty"),
        (whole({"content": None}), "empty"),
        (event({"content": "and th"}), "cut_stream"),
        (event({"content": "and th"}) + b'data: {"choi', "cut_stream"),
        (b"<html>sign in</html>", "malformed"),
        (b"\n <!doctype html>", "malformed"),
        (b"Internal error", "malformed"),
        (b"[1]", "malformed"),
        (b'{"choices": [', "malformed"),
        (b"[" * 100_000, "malformed"),
        (b"data: {not json}\n\n" + DONE, "malformed"),
        (b"data: 12\n\n" + DONE, "malformed"),
        (event({"tool_calls": 7}), "malformed"),
        (event({"tool_calls": [7]}), "malformed"),
        (b'data: {"error":{"message":"busy","code":503}}\n\n', "overloaded"),
        (b'{"error":{"message":"slow down","code":"429"}}', "rate_limited"),
        (b'{"error":"the model crashed"}', "internal"),
        (b'data: {"object":"error","message":"x","code":400}\n\n', "bad_request"),
        (b'{"error":{"message":"x","code":"context_length_exceeded"}}', "context_overflow"),
        (event({"content": "x"}, "error") + DONE, "internal"),
        (b'data: {"error":{"code":429}}', "rate_limited"),
    ],
)
def test_what_is_no_reply_fails_with_its_class(body: bytes, error_class: str) -> None:
    with pytest.raises(ModelError) as failure:
        read(body)
    assert failure.value.error_class == error_class


@pytest.mark.parametrize(("reason", "stop"), [("length", "length"), ("content_filter", "refusal")])
def test_a_reply_that_was_stopped_before_its_first_word_counts(reason: str, stop: str) -> None:
    reply = read(event({}, reason) + DONE)
    assert (reply.content, reply.stop) == ((), stop)


def test_a_refusal_is_shown_as_text() -> None:
    assert read(whole({"content": None, "refusal": "no"})).content == (TextPart(text="no"),)


def test_content_in_parts_keeps_its_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}, 7]
    assert read(whole({"content": parts})).content == (TextPart(text="ab"),)


def test_thinking_and_text_keep_their_order() -> None:
    pieces: list[Json] = [
        {"reasoning": "1"},
        {"content": "2"},
        {"reasoning": "3"},
        {"content": "4"},
    ]
    reply = read(*map(event, pieces), event({}, "stop"), DONE)
    assert [part.kind for part in reply.content] == ["thinking", "text", "thinking", "text"]


def test_F20_details_that_the_provider_wants_back_are_kept() -> None:
    pieces: list[Json] = [
        {"reasoning_details": [{"type": "x", "n": 1}]},
        {"reasoning_details": [{"type": "y"}], "content": "ok"},
    ]
    reply = read(*map(event, pieces), event({}, "stop"), DONE)
    native = reply.content[-1]
    assert isinstance(native, NativePart)
    assert native.provider == "openai"
    assert json.loads(str(native.json_text)) == {
        "reasoning_details": [{"type": "x", "n": 1}, {"type": "y"}]
    }


def test_a_character_cut_into_two_chunks_is_mended() -> None:
    deltas: list[Delta] = []
    halves = rb'data: {"choices":[{"delta":{"content":"\ud83c"}}]}', rb"\udf89"
    chunks = [halves[0] + b"\n\n", halves[0].replace(rb"\ud83c", halves[1]) + b"\n\n"]
    reply = read(*chunks, event({}, "stop"), deltas=deltas)
    assert reply.content == (TextPart(text="🎉"),)
    assert all(delta.text.encode() for delta in deltas)


def test_only_the_first_choice_is_read() -> None:
    other = {"index": 1, "delta": {"content": "other"}, "finish_reason": None}
    stream = b"data: " + json.dumps({"choices": [other]}).encode() + b"\n\n"
    assert read(event({"content": "x"}), stream, event({}, "stop")).content == (TextPart(text="x"),)


def test_C66_a_reply_is_cut_at_the_decoded_size_cap() -> None:
    text = "x" * limits.MIB
    call: Json = {"tool_calls": [piece(0, "a", "cli", text)]}
    line = b"data: " + text.encode()
    content, wire = limits.REPLY_BYTES_MAX // limits.MIB, limits.REPLY_WIRE_BYTES_MAX // limits.MIB
    for endless, chunks in [
        (event({"content": text}), content),
        (event({"reasoning": text}), content),
        (event(call), content),
        (line, content),
        (b'{"a":"' + line, content),
        (line + b"\n", content),
        (b" " * limits.MIB, wire),
        (b"\n" * limits.MIB, wire),
        (b": comment\n" * (limits.MIB // 10), wire),
    ]:
        reader = ReplyReader(MODEL, lambda delta: None)
        for _ in range(chunks - 1):
            reader.feed(endless)
        with pytest.raises(ModelError) as failure:
            read_on(reader, endless, 3)
        assert (failure.value.error_class, failure.value.retryable) == ("too_large", False)


def test_C66_a_reply_is_cut_at_the_cap_of_events() -> None:
    chunk = b"data: {}\n" * 100_000
    read(*[chunk] * (limits.REPLY_EVENTS_MAX // 100_000 - 1), event({"content": "x"}, "stop"))
    with pytest.raises(ModelError) as failure:
        read(*[chunk] * (limits.REPLY_EVENTS_MAX // 100_000), chunk)
    assert failure.value.error_class == "too_large"


def test_C66_framing_does_not_count_as_content() -> None:
    framed = event({"content": "x"}, system_fingerprint="f" * 300) * 1_000
    reader = ReplyReader(MODEL, lambda delta: None)
    for _ in range(limits.REPLY_BYTES_MAX // len(framed) + 1):
        reader.feed(framed)
    reader.feed(event({}, "stop"))
    assert reader.finish().stop == "end"
