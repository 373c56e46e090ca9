"""What foreign servers and networks do to the OpenAI adapter: one test a quirk."""

import asyncio
import gzip
import hashlib
import inspect
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace

import anyio
import httpx2
import openai
import pytest
from openai import _exceptions as sdk_errors

from tests.helpers.foreign_server import EVENTS, Answer, begun, fixed, foreign_server, head
from tests.helpers.model_messages import CLI, answer, call, request_of, result, user
from tests.helpers.wire_validators import validate_completions
from threadlog import limits
from threadlog.adapters.model_api.openai_failures import FOREIGN_ERRORS, failure_of_exception
from threadlog.adapters.model_api.openai_model import OpenAIModel, list_models
from threadlog.adapters.model_api.openai_wire import Dialect
from threadlog.adapters.model_api.script import parse_script
from threadlog.adapters.model_api.scripted_server import QUIRKS, Quirk, scripted_server
from threadlog.errors import LateError, ModelError, UsageError
from threadlog.events.content import TextPart, ThinkingPart
from threadlog.ports.model import Delta, ModelReply, ModelRequest

KEY = "plain0123456789abcdef"  # nothing about it looks like a key
ASK = request_of(user("?"))
STREAMED = (
    b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
)
DONE = b"data: [DONE]\n\n"
FULL = (
    '[{"thinking": "hm", "text": "hi", "calls": ["ls", "pwd"], "usage": {"input": 3, "output": 4}}]'
)


async def ask_at(
    url: str,
    request: ModelRequest = ASK,
    *,
    on_delta: Callable[[Delta], None] = lambda delta: None,
    idle_ms: int = 5_000,
    total_ms: int = 10_000,
) -> ModelReply:
    model = OpenAIModel(base_url=url, api_key=KEY, idle_ms=idle_ms, total_ms=total_ms)
    try:
        return await model.send(model.render(request), on_delta)
    finally:
        await model.aclose()


async def test_law_3_no_byte_of_a_late_request_leaves() -> None:
    """The claim may grow old while the connection is set up."""
    async with foreign_server(fixed(200, b"{}")) as server:
        asked: list[int] = []

        def may_start() -> bool:
            asked.append(server.connections)
            return False

        model = OpenAIModel(base_url=server.url, api_key=KEY, idle_ms=5_000, total_ms=10_000)
        try:
            with pytest.raises(LateError):
                await model.send(model.render(ASK), lambda delta: None, may_start=may_start)
        finally:
            await model.aclose()
        async with asyncio.timeout(10):
            await server.left.wait()
        assert asked == [1], "asked once, when the connection stood"
        assert server.received == []


async def failure_at(url: str, *, idle_ms: int = 5_000, total_ms: int = 10_000) -> ModelError:
    with pytest.raises(ModelError) as failure:
        await ask_at(url, idle_ms=idle_ms, total_ms=total_ms)
    assert KEY not in str(failure.value)
    return failure.value


async def failure_of(answer: Answer, *, idle_ms: int = 5_000, total_ms: int = 10_000) -> ModelError:
    """The failure, after one request; on a slow machine time may be up before it is read."""
    async with foreign_server(answer) as server:
        failure = await failure_at(server.url, idle_ms=idle_ms, total_ms=total_ms)
        assert len(server.received) <= 1, "a request is never repeated inside"
        return failure


async def test_the_bytes_sent_are_the_bytes_rendered() -> None:
    one = call(1, '{"command": "l')
    messages = (user("Grüße 🎉"), answer("", "openai", one), result(one, "ok"))
    spaced = replace(CLI, parameters='{ "type": "object" , "properties": {} }')
    request = replace(request_of(*messages), tools=(spaced,))
    async with foreign_server(fixed(200, STREAMED + DONE, EVENTS)) as server:
        model = OpenAIModel(base_url=server.url, api_key=KEY)
        body = model.render(request)
        reply = await model.send(body, lambda delta: None)
        await model.aclose()
    received = server.received[0]
    assert hashlib.sha256(received.body).digest() == hashlib.sha256(body).digest()
    assert received.target == "/v1/chat/completions"
    assert received.headers["content-type"] == "application/json"
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert reply.content == (TextPart(text="hi"),)
    validate_completions(received.body)


async def test_without_a_key_none_is_sent() -> None:
    async with foreign_server(fixed(200, STREAMED + DONE, EVENTS)) as server:
        model = OpenAIModel(base_url=server.url)
        await model.send(model.render(ASK), lambda delta: None)
        await model.aclose()
    assert server.received[0].headers["authorization"] == "Bearer none"


async def test_the_connection_is_kept_for_the_next_request() -> None:
    async with foreign_server(fixed(200, STREAMED + DONE, EVENTS)) as server:
        model = OpenAIModel(base_url=server.url)
        for _ in range(3):
            await model.send(model.render(ASK), lambda delta: None)
        await model.aclose()
    assert (len(server.received), server.connections) == (3, 1)


@pytest.mark.parametrize(
    "quirks", [["no-usage"], ["one-chunk"], ["json"], ["json", "no-usage"]], ids="+".join
)
async def test_a_foreign_server_that_answers_differently_is_understood(quirks: list[Quirk]) -> None:
    async with scripted_server(parse_script(FULL), quirks=frozenset(quirks)) as url:
        deltas: list[Delta] = []
        reply = await ask_at(url, on_delta=deltas.append)
    assert reply.content == (ThinkingPart(text="hm"), TextPart(text="hi"))
    assert [call.arguments for call in reply.calls] == ['{"command":"ls"}', '{"command":"pwd"}']
    assert reply.stop == "calls"
    assert (reply.usage is None) == ("no-usage" in quirks)
    assert deltas == [Delta("thinking", "hm"), Delta("text", "hi")]


async def test_C66_a_web_page_with_status_200_is_malformed() -> None:
    async with scripted_server(parse_script(FULL), quirks=frozenset[Quirk](["html"])) as url:
        failure = await failure_at(url)
    assert (failure.error_class, failure.retryable) == ("malformed", True)
    assert "OPENAI_BASE_URL" in str(failure)


@pytest.mark.parametrize(
    ("quirk", "error_class", "advice"),
    [("401", "unauthenticated", "OPENAI_API_KEY"), ("404", "not_found", "OPENAI_BASE_URL")],
)
async def test_401_and_404_as_text_say_what_to_do(
    quirk: Quirk, error_class: str, advice: str
) -> None:
    async with scripted_server(parse_script(FULL), quirks=frozenset([quirk])) as url:
        failure = await failure_at(url)
        with pytest.raises(ModelError, match=advice):
            await list_models(url, KEY)
    assert (failure.error_class, failure.retryable) == (error_class, False)
    assert advice in str(failure)


async def test_a_server_without_stream_options_is_asked_without() -> None:
    quirks = frozenset[Quirk](["no-stream-options"])
    async with scripted_server(parse_script(FULL), quirks=quirks) as url:
        failure = await failure_at(url)
        model = OpenAIModel(base_url=url, dialect=Dialect(asks_usage=False))
        reply = await model.send(model.render(ASK), lambda delta: None)
        await model.aclose()
    assert (failure.error_class, failure.retryable) == ("bad_request", False)
    assert "stream_options" in str(failure)
    assert (reply.stop, reply.usage) == ("calls", None)


def test_every_quirk_of_the_scripted_server_has_a_test() -> None:
    tested = {"no-usage", "one-chunk", "json", "html", "401", "404", "no-stream-options"}
    assert set(QUIRKS) == tested


async def test_L6_a_cut_stream_is_tried_again() -> None:
    failure = await failure_of(fixed(200, STREAMED[:70], EVENTS, missing_bytes=50))
    assert (failure.error_class, failure.retryable) == ("cut_stream", True)


async def test_a_reply_that_was_complete_when_the_connection_broke_counts() -> None:
    async with foreign_server(fixed(200, STREAMED, EVENTS, missing_bytes=50)) as server:
        assert (await ask_at(server.url)).stop == "end"


async def test_a_complete_reply_does_not_wait_for_a_server_that_never_ends_it() -> None:
    async with foreign_server(begun(STREAMED + DONE)) as server:
        reply = await asyncio.wait_for(ask_at(server.url, idle_ms=60_000, total_ms=60_000), 5)
    assert reply.content == (TextPart(text="hi"),)


@pytest.mark.parametrize("body", [b"", STREAMED[:70]], ids=["headers only", "in mid-stream"])
async def test_L6_a_silent_stream_is_idle(body: bytes) -> None:
    failure = await failure_of(begun(body), idle_ms=50)
    assert (failure.error_class, failure.retryable) == ("idle", True)


async def test_L6_a_server_that_never_answers_is_idle() -> None:
    async def silence(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    failure = await failure_of(silence, idle_ms=50)
    assert (failure.error_class, failure.retryable) == ("idle", True)


async def test_a_request_ends_after_its_total_time_however_busy_the_stream() -> None:
    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, EVENTS | {"content-length": "1000000"}))
        while True:
            writer.write(b": keep-alive\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    failure = await failure_of(trickle, total_ms=300)
    assert (failure.error_class, failure.retryable) == ("timeout", True)


async def test_L6_a_rate_limit_says_when_to_come_back() -> None:
    failure = await failure_of(fixed(429, b"{}", {"retry-after": "2"}))
    assert (failure.error_class, failure.retryable) == ("rate_limited", True)
    assert failure.retry_after_ms == 2_000


async def test_C66_a_wish_to_wait_for_30_years_is_capped() -> None:
    failure = await failure_of(fixed(429, b"slow down", {"retry-after": "1e9"}))
    assert failure.retry_after_ms == limits.RETRY_CAP_MS


async def test_L6_a_failing_server_is_tried_again() -> None:
    failure = await failure_of(fixed(500, b'{"error":{"message":"oh"}}'))
    assert (failure.error_class, failure.retryable) == ("internal", True)
    assert "oh" in str(failure)


async def test_a_redirect_is_not_followed() -> None:
    failure = await failure_of(fixed(307, b"", {"location": "http://elsewhere.invalid/v1"}))
    assert (failure.error_class, failure.retryable) == ("bad_request", False)
    assert "elsewhere.invalid" in str(failure)


async def test_the_key_is_not_repeated_even_when_the_server_does() -> None:
    for status in (400, 401, 403, 500):
        failure = await failure_of(fixed(status, f"your key {KEY} is odd".encode()))
        assert "0123456789" not in str(failure)


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("content", [b" ", b"\n", b"x", b"data: {}\n\n"])
async def test_C66_a_compressed_bomb_is_cut_at_the_decoded_size_cap(
    status: int, content: bytes
) -> None:
    bomb = gzip.compress(content * (64 * limits.MIB // len(content)), compresslevel=1)
    assert len(bomb) < limits.MIB
    failure = await failure_of(fixed(status, bomb, EVENTS | {"content-encoding": "gzip"}))
    assert failure.error_class == ("too_large" if status == 200 else "internal")


async def test_C66_an_endless_failure_is_cut() -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(head(500, {"content-length": str(10**9)}))
        while True:
            writer.write(b"x" * limits.MIB)
            await writer.drain()

    assert (await failure_of(endless)).error_class == "internal"


async def test_broken_compression_is_malformed() -> None:
    failure = await failure_of(fixed(200, b"not gzip at all", {"content-encoding": "gzip"}))
    assert (failure.error_class, failure.retryable) == ("malformed", True)


async def test_a_failure_whose_body_cannot_be_read_keeps_its_class() -> None:
    failure = await failure_of(fixed(503, b"not gzip", {"content-encoding": "gzip"}))
    assert (failure.error_class, failure.retryable) == ("overloaded", True)


async def test_a_refused_connection_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    failure = await failure_at(f"http://127.0.0.1:{port}/v1")
    assert (failure.error_class, failure.retryable) == ("connection", True)
    assert "is its server up?" in str(failure)


@pytest.mark.parametrize(
    "body", [b"", DONE, STREAMED.replace(b"hi", b"") + DONE], ids=["nothing", "done", "no text"]
)
async def test_an_empty_reply_is_tried_again(body: bytes) -> None:
    failure = await failure_of(fixed(200, body, EVENTS))
    assert (failure.error_class, failure.retryable) == ("empty", True)


@pytest.mark.parametrize("body", [None, b"", STREAMED[:70]], ids=["before", "headers", "stream"])
async def test_cancelling_closes_the_connection(body: bytes | None) -> None:
    async def silence(writer: asyncio.StreamWriter) -> None:
        return None

    async with foreign_server(silence if body is None else begun(body)) as server:
        task = asyncio.create_task(ask_at(server.url))
        await server.answering.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.left.wait(), 5)


@pytest.mark.parametrize(
    "body",
    [b"[]", b'{"data":{}}', b"<html>", b'{"models":[]}'],
    ids=["list", "data", "page", "other"],
)
async def test_models_that_are_not_listed_are_an_error(body: bytes) -> None:
    async with foreign_server(fixed(200, body)) as server:
        with pytest.raises(ModelError) as failure:
            await list_models(server.url, KEY)
    assert failure.value.error_class == "malformed"


async def test_odd_entries_of_the_list_of_models_are_skipped() -> None:
    body = b'{"data":[{"id":"a"},7,{"id":""},{"name":"x"},{"id":"b"}]}'
    async with foreign_server(fixed(200, body)) as server:
        assert await list_models(server.url, KEY) == ("a", "b")
        assert server.received[0].target == "/v1/models"


@pytest.mark.parametrize(
    "url", ["", "api.openai.com", "ftp://x/v1", "http://", "http://[::1", "x y"]
)
def test_an_address_that_is_none_is_a_usage_error(url: str) -> None:
    if not url:
        assert OpenAIModel(base_url=url).renderer
        return
    with pytest.raises(UsageError, match="OPENAI_BASE_URL"):
        OpenAIModel(base_url=url)


@pytest.mark.parametrize("key", ["a b", "clé", "a\nb", "\x00"])
def test_a_key_that_is_none_is_a_usage_error_that_does_not_show_it(key: str) -> None:
    with pytest.raises(UsageError, match="OPENAI_API_KEY") as refusal:
        OpenAIModel(api_key=key)
    assert key not in str(refusal.value)


REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1", headers={"authorization": f"Bearer {KEY}"})
SDK_CLASSES = {
    "APIConnectionError": "connection",
    "APIError": "internal",
    "APIResponseValidationError": "malformed",
    "APIStatusError": "bad_request",
    "APITimeoutError": "connection",
    "AuthenticationError": "unauthenticated",
    "BadRequestError": "bad_request",
    "ConflictError": "overloaded",
    "ContentFilterFinishReasonError": "refused",
    "InternalServerError": "internal",
    "LengthFinishReasonError": "malformed",
    "NotFoundError": "not_found",
    "OAuthError": "unauthenticated",
    "OpenAIError": "unauthenticated",
    "PermissionDeniedError": "unauthenticated",
    "RateLimitError": "rate_limited",
    "SubjectTokenProviderError": "unauthenticated",
    "UnprocessableEntityError": "bad_request",
    "WebSocketConnectionClosedError": "connection",
    "WebSocketQueueFullError": "connection",
}
NOT_OF_REQUESTS = {"InvalidWebhookSignatureError"}


def sdk_classes() -> dict[str, type[Exception]]:
    return {
        name: value
        for name, value in vars(sdk_errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    }


def made(kind: type[Exception]) -> Exception:
    """An instance, as the SDK would make it: by what its constructor asks for."""
    statuses = {
        "AuthenticationError": 401,
        "OAuthError": 401,
        "PermissionDeniedError": 403,
        "NotFoundError": 404,
        "ConflictError": 409,
        "UnprocessableEntityError": 422,
        "RateLimitError": 429,
        "InternalServerError": 500,
    }
    response = httpx2.Response(statuses.get(kind.__name__, 400), text=KEY, request=REQUEST)
    completion = openai.types.chat.ChatCompletion.construct(usage=None)
    values: dict[str, object] = {
        "message": KEY,
        "request": REQUEST,
        "response": response,
        "body": KEY,
        "completion": completion,
        "unsent_messages": [KEY],
    }
    parameters = inspect.signature(kind.__init__).parameters.values()
    known = {p.name: values[p.name] for p in parameters if p.name in values}
    return kind(**known)


def test_L6_every_error_of_the_sdk_has_its_class() -> None:
    found = sdk_classes()
    assert set(found) == set(SDK_CLASSES) | NOT_OF_REQUESTS, "the SDK has other errors now"
    for name, expected in SDK_CLASSES.items():
        error = made(found[name])
        assert isinstance(error, FOREIGN_ERRORS)
        failure = failure_of_exception(error, now_ms=0)
        assert failure.error_class == expected, name
        # What a server says is freed of the key where the key is known, see the test above.
        assert KEY not in str(failure) or isinstance(error, openai.APIError)


TRANSPORT_CLASSES = {
    "CloseError": ("connection", "cut_stream"),
    "ConnectError": ("connection", "cut_stream"),
    "ConnectTimeout": ("connection", "connection"),
    "DecodingError": ("malformed", "malformed"),
    "HTTPError": ("connection", "cut_stream"),
    "HTTPStatusError": ("connection", "cut_stream"),
    "InvalidURL": ("bad_request", "bad_request"),
    "LocalProtocolError": ("bad_request", "bad_request"),
    "NetworkError": ("connection", "cut_stream"),
    "PoolTimeout": ("timeout", "timeout"),
    "ProtocolError": ("connection", "cut_stream"),
    "ProxyError": ("connection", "cut_stream"),
    "ReadError": ("connection", "cut_stream"),
    "ReadTimeout": ("idle", "idle"),
    "RemoteProtocolError": ("connection", "cut_stream"),
    "RequestError": ("connection", "cut_stream"),
    "RequestNotRead": ("internal", "internal"),
    "ResponseNotRead": ("internal", "internal"),
    "SSEError": ("connection", "cut_stream"),
    "StreamClosed": ("internal", "internal"),
    "StreamConsumed": ("internal", "internal"),
    "StreamError": ("internal", "internal"),
    "TimeoutException": ("timeout", "timeout"),
    "TooManyRedirects": ("bad_request", "bad_request"),
    "TransportError": ("connection", "cut_stream"),
    "UnsupportedProtocol": ("bad_request", "bad_request"),
    "WriteError": ("connection", "cut_stream"),
    "WriteTimeout": ("timeout", "timeout"),
}


def test_L6_every_error_of_the_http_client_has_its_class_before_and_within_the_reply() -> None:
    found = {
        name: value
        for name, value in vars(httpx2).items()
        if inspect.isclass(value) and issubclass(value, FOREIGN_ERRORS)
    }
    assert set(found) == set(TRANSPORT_CLASSES), "the HTTP client has other errors now"
    instances = {name: kind.__new__(kind, KEY) for name, kind in found.items()}
    instances |= {"ssl": ssl.SSLError(KEY), "end": anyio.EndOfStream(KEY)}
    expected = TRANSPORT_CLASSES | dict.fromkeys(("ssl", "end"), ("connection", "cut_stream"))
    for name, error in instances.items():
        wrapped = openai.APIConnectionError(request=REQUEST)
        wrapped.__cause__ = error
        failures = [failure_of_exception(e, now_ms=0) for e in (wrapped, error)]
        assert tuple(f.error_class for f in failures) == expected[name], name
        assert not any(KEY in str(failure) for failure in failures)


async def test_nothing_is_logged_that_holds_the_key_or_the_prompt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = replace(ASK, system_prompt="the secret prompt")
    async with foreign_server(fixed(200, STREAMED + DONE, EVENTS)) as server:
        await ask_at(server.url, secret)
    assert KEY not in caplog.text
    assert "secret prompt" not in caplog.text
