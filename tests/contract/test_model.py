"""The model contract over every adapter: the scripted one, and both providers' over HTTP."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx2
import pytest

from tests.contract.model_suite import ModelSuite
from tests.helpers.messages_server import MODEL_NAME, messages_server
from tests.helpers.model_messages import request_of, user
from threadlog.adapters.model_api.anthropic_model import AnthropicModel
from threadlog.adapters.model_api.anthropic_model import list_models as list_anthropic_models
from threadlog.adapters.model_api.openai_model import OpenAIModel, list_models
from threadlog.adapters.model_api.script import Script, parse_script
from threadlog.adapters.model_api.scripted import ScriptedModel
from threadlog.adapters.model_api.scripted_server import Quirk, scripted_server
from threadlog.errors import ModelError, UsageError
from threadlog.ports.model import Model


class TestScriptedModel(ModelSuite):
    provider = "scripted"

    def running(self, script: Script) -> AbstractAsyncContextManager[Model]:
        return self._running(script)

    @asynccontextmanager
    async def _running(self, script: Script) -> AsyncIterator[Model]:
        yield ScriptedModel(script)


class TestOpenAIModel(ModelSuite):
    provider = "openai"
    quirks: frozenset[Quirk] = frozenset()

    def running(self, script: Script) -> AbstractAsyncContextManager[Model]:
        return self._running(script)

    @asynccontextmanager
    async def _running(self, script: Script) -> AsyncIterator[Model]:
        async with scripted_server(script, quirks=self.quirks) as url:
            model = OpenAIModel(base_url=url)
            try:
                yield model
            finally:
                await model.aclose()


class TestAnthropicModel(ModelSuite):
    """Over a server that refuses every body that the provider would refuse."""

    provider = "anthropic"

    def running(self, script: Script) -> AbstractAsyncContextManager[Model]:
        return self._running(script)

    @asynccontextmanager
    async def _running(self, script: Script) -> AsyncIterator[Model]:
        async with messages_server(script) as server:
            model = AnthropicModel(base_url=server.url)
            try:
                yield model
            finally:
                await model.aclose()


async def test_the_names_of_anthropics_models_are_listed() -> None:
    async with messages_server(parse_script("[]")) as server:
        assert await list_anthropic_models(server.url, None) == (MODEL_NAME,)
        assert server.received[0].target == "/v1/models?limit=1000"


async def test_the_names_of_the_models_are_listed() -> None:
    async with scripted_server(parse_script("[]")) as url:
        assert await list_models(url, None) == ("scripted",)


async def test_a_port_that_is_taken_is_a_usage_error() -> None:
    async with scripted_server(parse_script("[]")) as url:
        port = int(url.split(":")[2].removesuffix("/v1"))
        with pytest.raises(UsageError, match="cannot listen"):
            await scripted_server(parse_script("[]"), port=port).__aenter__()


async def test_the_server_answers_plain_clients_too() -> None:
    script = parse_script('[{"text": "hi", "calls": ["ls"], "usage": {"input": 2, "output": 1}}]')
    async with scripted_server(script) as url, httpx2.AsyncClient(trust_env=False) as client:
        health = await client.get(url.removesuffix("/v1") + "/healthz")
        assert health.json() == {"status": "ok"}
        ask = {"model": "any", "messages": [{"role": "user", "content": "?"}]}
        reply = (await client.post(f"{url}/chat/completions", json=ask)).json()
        assert reply["choices"][0]["message"]["content"] == "hi"
        assert reply["choices"][0]["finish_reason"] == "tool_calls"
        assert (reply["model"], reply["usage"]["total_tokens"]) == ("any", 3)
        for wrong in (b"", b"[]", b'{"model":"m"}', b'{"model":"m","messages":[7]}'):
            refusal = await client.post(f"{url}/chat/completions", content=wrong)
            assert refusal.status_code == 400
            assert refusal.json()["error"]["code"] == "invalid_request_error"
        past = ask | {"messages": [{"role": "assistant", "content": "hi"}]}
        refusal = await client.post(f"{url}/chat/completions", json=past)
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, "script_exhausted")


async def test_a_scripted_silence_is_idle_and_does_not_hold_the_server() -> None:
    async with scripted_server(parse_script('[{"error": {"class": "idle"}}]')) as url:
        model = OpenAIModel(base_url=url, idle_ms=100)
        with pytest.raises(ModelError) as failure:
            await model.send(model.render(request_of(user("?"))), lambda delta: None)
        await model.aclose()
    assert failure.value.error_class == "idle"


async def test_the_server_listens_on_loopback_only() -> None:
    async with scripted_server(parse_script("[]")) as url:
        assert url.startswith("http://127.0.0.1:")


async def test_the_official_address_gets_the_new_name_of_the_limit() -> None:
    official, foreign = OpenAIModel(), OpenAIModel(base_url="http://127.0.0.1:1/v1")
    try:
        assert official.renderer == "openai-chat/1+max_completion_tokens"
        assert foreign.renderer == "openai-chat/1"
        assert official.render(request_of(user("?"))) == foreign.render(request_of(user("?")))
    finally:
        await official.aclose()
        await foreign.aclose()
