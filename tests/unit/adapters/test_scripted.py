"""The scripted model: strict scripts, replies chosen without state, failures that give way."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from tests.helpers.model_messages import answer, call, request_of, requests, result, user
from threadlog import limits
from threadlog.adapters.model_api import script
from threadlog.adapters.model_api.script import load_script, parse_script
from threadlog.adapters.model_api.scripted import ScriptedModel, render
from threadlog.errors import ModelError, UsageError
from threadlog.events.content import ModelRef, TextPart, ThinkingPart, Usage
from threadlog.events.step import ModelCall
from threadlog.ports.model import Delta, ModelReply, ModelRequest

MODEL = ModelRef(provider="scripted", name="s")
FULL = """[{"text": "Look.", "thinking": "hm", "calls": ["ls -l", {"name": "odd", "arguments": "{",
"id": "x"}, {"name": "cli", "arguments": {"command": "pwd"}}], "stop": "length", "delay_ms": 1,
"usage": {"input": 7, "output": 3}}]"""


def model_of(text: str) -> ScriptedModel:
    return ScriptedModel(parse_script(text))


async def asked(model: ScriptedModel, request: ModelRequest) -> ModelReply:
    return await model.send(model.render(request), lambda delta: None)


async def failed(model: ScriptedModel, request: ModelRequest) -> ModelError:
    with pytest.raises(ModelError) as failure:
        await asked(model, request)
    return failure.value


async def test_a_reply_has_all_that_its_entry_says() -> None:
    assert await asked(model_of(FULL), request_of(user("?"), model=MODEL)) == ModelReply(
        content=(ThinkingPart(text="hm"), TextPart(text="Look.")),
        calls=(
            ModelCall(provider_call_id="script_0_0", name="cli", arguments='{"command":"ls -l"}'),
            ModelCall(provider_call_id="x", name="odd", arguments="{"),
            ModelCall(provider_call_id="script_0_2", name="cli", arguments='{"command":"pwd"}'),
        ),
        stop="length",
        usage=Usage(input=7, output=3),
        model=MODEL,
    )


async def test_the_number_of_assistant_messages_chooses_the_reply() -> None:
    model = model_of('[{"text": "one"}, {"calls": ["ls"]}, {"text": "three"}]')
    one = call(1)
    history = (user("?"), answer("one"), user("and?"), answer("", "scripted", one), result(one))
    stops = [(await asked(model, request_of(*history[:n]))).stop for n in (5, 1, 3, 1, 5)]
    assert stops == ["end", "end", "calls", "end", "end"]
    error = await failed(model, request_of(*history, answer("three"), user("?")))
    assert (error.error_class, error.retryable) == ("script_exhausted", False)
    assert "3 replies" in str(error)


async def test_an_error_with_times_gives_way_to_the_reply() -> None:
    error = '{"class": "rate_limited", "times": 2, "retry_after_ms": 99999999}'
    model = model_of(f'[{{"text": "at last", "error": {error}}}]')
    request, other = request_of(user("a")), request_of(user("b"))
    first = await failed(model, request)
    assert (first.error_class, first.retryable) == ("rate_limited", True)
    assert first.retry_after_ms == limits.RETRY_CAP_MS
    await failed(model, other)
    await failed(model, request)
    assert (await asked(model, request)).content == (TextPart(text="at last"),)
    await failed(model, other)
    assert (await asked(model, other)).stop == "end"
    assert (await failed(model, request)).error_class == "rate_limited", "the count began anew"


async def test_counted_failures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "_ATTEMPTS_MAX", 2)
    model = model_of('[{"text": "at last", "error": {"class": "idle", "times": 1}}]')
    for text in ("a", "b", "c"):
        await failed(model, request_of(user(text)))
    await failed(model, request_of(user("a")))
    assert (await asked(model, request_of(user("c")))).stop == "end"


async def test_an_error_without_times_never_gives_way() -> None:
    model = model_of('[{"error": {"class": "unauthenticated", "message": "no key"}}]')
    for _ in range(3):
        error = await failed(model, request_of(user("a")))
        assert (str(error), error.retryable) == ("no key", False)


async def test_text_streams_in_small_pieces() -> None:
    deltas: list[Delta] = []
    model = model_of('[{"thinking": "hm", "delay_ms": 5, "text": "' + "abc " * 50 + '"}]')
    await model.send(model.render(request_of(user("?"))), deltas.append)
    assert deltas[0] == Delta("thinking", "hm")
    assert "".join(delta.text for delta in deltas[1:]) == "abc " * 50
    assert len(deltas) > 5


async def test_without_a_delay_text_comes_in_one_piece() -> None:
    deltas: list[Delta] = []
    model = model_of('[{"thinking": "hm", "text": "' + "abc " * 50 + '"}]')
    await model.send(model.render(request_of(user("?"))), deltas.append)
    assert deltas == [Delta("thinking", "hm"), Delta("text", "abc " * 50)]


async def test_the_delay_is_honoured_and_ends_with_a_cancel() -> None:
    model = model_of('[{"text": "late", "delay_ms": 3600000}]')
    task = asyncio.create_task(asked(model, request_of(user("?"))))
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@given(requests())
def test_rendering_is_exact(request: ModelRequest) -> None:
    again = replace(request, blobs=dict(request.blobs))
    assert render(request) == render(again)
    longer = replace(request, messages=(*request.messages, user("more")))
    assert render(longer) != render(request)
    assert render(replace(request, blobs={})).count(b"[unavailable") >= render(request).count(
        b"[unavailable"
    )


def test_the_bytes_of_version_1_never_change() -> None:
    one = call(1)
    request = request_of(user("hi"), answer("", "scripted", one), result(one), model=MODEL)
    assert render(request) == (
        b'{"replies":1,"provider":"scripted","model":"s"}\n{"system":"Be brief.","tools":[{'
        b'"name":"cli","description":"Run a command line.","parameters":"{\\"properties\\":'
        b'{\\"command\\":{\\"type\\":\\"string\\"}},\\"required\\":[\\"command\\"],'
        b'\\"type\\":\\"object\\"}"}],"thinking":null,"output_tokens_max":null,"messages":['
        b'{"parts":[{"kind":"text","text":"hi"}]},{"parts":[],"calls":[{"call_id":"ID",'
        b'"name":"cli","arguments":"{\\"command\\":\\"ls\\"}"}],"provider":"scripted",'
        b'"interrupted":false},{"call_id":"ID","name":"cli","text":"ok","is_error":false}]}'
    ).replace(b"ID", one.call_id.encode())


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("[", "s.json is no JSON"),
        ("{}", "must be a JSON list"),
        ('[{"text": "a"}, {"txet": "b"}]', "reply 2, txet"),
        ('[{"text": "a", "text": "b"}]', "a member is named twice"),
        ('[{"text": 7}]', "reply 1, text"),
        ("[7]", "reply 1: "),
        ("[{}]", "reply 1 needs a text"),
        ('[{"text": " "}]', "reply 1 needs a text"),
        ('[{"error": {"class": "idle", "times": 1}}]', "reply 1 needs a text"),
        ('[{"calls": "ls"}]', "reply 1, calls"),
        ('[{"calls": [7]}]', "reply 1, calls.0"),
        ('[{"calls": [{"arguments": {}}]}]', "reply 1, calls.0"),
        ('[{"text": "a", "delay_ms": -1}]', "reply 1, delay_ms"),
        ('[{"text": "a", "delay_ms": 1.5}]', "reply 1, delay_ms"),
        ('[{"text": "a", "stop": "soon"}]', "reply 1, stop"),
        ('[{"text": "a", "stop": "calls"}]', "reply 1 stops for calls"),
        ('[{"calls": ["ls"], "stop": "end"}]', "reply 1 has calls"),
        ('[{"text": "a", "usage": {"tokens": 1}}]', "reply 1, usage.tokens"),
        ('[{"error": {"class": "bored"}}]', "reply 1, error.class"),
        ('[{"error": {"class": "idle", "times": 0}}]', "reply 1, error.times"),
        (json.dumps([{"calls": ["ls"] * 65}]), "reply 1, calls"),
        (json.dumps([{"calls": [{"name": "x" * 257}]}]), "reply 1, calls.0"),
        (json.dumps([{"calls": [{"name": "x", "id": "x" * 257}]}]), "reply 1, calls.0"),
    ],
)
def test_a_wrong_script_is_refused_with_the_place_of_the_mistake(text: str, finding: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_script(text, "s.json")
    assert finding in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_script_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(FULL)
    assert len(load_script(path).replies) == 1
    with pytest.raises(UsageError, match="cannot read the script"):
        load_script(tmp_path / "none.json")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is no JSON"):
        load_script(path)
