"""What every model is held to; an adapter inherits this and says how it is made from a script."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace

import pytest

from tests.helpers.model_messages import PNG, answer, blob, call, request_of, result, user
from threadlog import limits
from threadlog.adapters.model_api.script import Script, parse_script
from threadlog.errors import LateError, ModelError
from threadlog.events.content import ImagePart, ModelRef, TextPart, ThinkingPart, Usage
from threadlog.ports.model import Delta, Model, ModelReply, ModelRequest
from threadlog.thread.messages import AssistantMessage, Message, UserMessage


class ModelSuite:
    """The contract of ports/model.py, told through scripts."""

    provider: str

    def running(self, script: Script) -> AbstractAsyncContextManager[Model]:
        """A model that answers as `script` says."""
        raise NotImplementedError

    @pytest.fixture
    async def stack(self) -> AsyncIterator[AsyncExitStack]:
        async with AsyncExitStack() as stack:
            yield stack

    async def model(self, stack: AsyncExitStack, script: str) -> Model:
        return await stack.enter_async_context(self.running(parse_script(script)))

    def asking(self, *messages: Message) -> ModelRequest:
        return request_of(*messages, model=ModelRef(provider=self.provider, name="m-1"))

    async def ask(self, model: Model, *messages: Message) -> ModelReply:
        return await model.send(model.render(self.asking(*messages)), lambda delta: None)

    async def fail(self, model: Model, *messages: Message) -> ModelError:
        with pytest.raises(ModelError) as failure:
            await self.ask(model, *messages)
        return failure.value

    async def test_text_arrives_whole_and_in_pieces(self, stack: AsyncExitStack) -> None:
        text = "Grüße 🎉\n" * 20
        model = await self.model(stack, f'[{{"text": {json.dumps(text)}, "delay_ms": 5}}]')
        deltas: list[Delta] = []
        reply = await model.send(model.render(self.asking(user("?"))), deltas.append)
        assert reply.content == (TextPart(text=text),)
        assert (reply.calls, reply.stop, reply.usage) == ((), "end", None)
        assert reply.model == ModelRef(provider=self.provider, name="m-1")
        assert "".join(delta.text for delta in deltas) == text
        assert {delta.kind for delta in deltas} == {"text"}
        assert len(deltas) > 1

    async def test_law_3_a_request_that_comes_too_late_is_not_made(
        self, stack: AsyncExitStack
    ) -> None:
        """Asked last thing; the model can be asked again, and answers as if nothing had been."""
        model = await self.model(stack, '[{"text": "yes"}]')
        body = model.render(self.asking(user("?")))
        deltas: list[Delta] = []
        for _ in range(2):
            with pytest.raises(LateError):
                await model.send(body, deltas.append, may_start=lambda: False)
        assert not deltas
        reply = await model.send(body, deltas.append, may_start=lambda: True)
        assert reply.content == (TextPart(text="yes"),)

    async def test_F20_thinking_is_apart_from_text(self, stack: AsyncExitStack) -> None:
        model = await self.model(stack, '[{"thinking": " hm\\n", "text": "yes"}]')
        deltas: list[Delta] = []
        reply = await model.send(model.render(self.asking(user("?"))), deltas.append)
        assert reply.content == (ThinkingPart(text=" hm\n"), TextPart(text="yes"))
        assert [delta.kind for delta in deltas] == ["thinking", "text"]

    async def test_C63_calls_keep_names_ids_and_arguments(self, stack: AsyncExitStack) -> None:
        calls = """["ls -l", {"name": "odd one", "arguments": "{\\"command\\": \\"l", "id": "x"},
            {"name": "cli", "arguments": "\\"{}\\"", "id": "x"}]"""
        reply = await self.ask(await self.model(stack, f'[{{"calls": {calls}}}]'), user("?"))
        assert [(c.name, c.arguments) for c in reply.calls] == [
            ("cli", '{"command":"ls -l"}'),
            ("odd one", '{"command": "l'),
            ("cli", '"{}"'),
        ]
        assert [call.provider_call_id for call in reply.calls][1:] == ["x", "x"]
        assert (reply.content, reply.stop) == ((), "calls")

    @pytest.mark.parametrize("stop", ["length", "refusal", "other", "end"])
    async def test_stop_reasons_arrive(self, stack: AsyncExitStack, stop: str) -> None:
        model = await self.model(stack, f'[{{"text": "x", "stop": "{stop}"}}]')
        assert (await self.ask(model, user("?"))).stop == stop

    async def test_F18_usage_arrives_by_kind(self, stack: AsyncExitStack) -> None:
        script = """[{"text": "x", "usage": {"input": 5, "output": 9, "cache_read": 2,
            "cache_write": 1, "reasoning": 4}}]"""
        reply = await self.ask(await self.model(stack, script), user("?"))
        assert reply.usage == Usage(input=5, output=9, cache_read=2, cache_write=1, reasoning=4)

    async def test_the_history_chooses_the_reply(self, stack: AsyncExitStack) -> None:
        model = await self.model(stack, '[{"text": "one"}, {"calls": ["ls"]}, {"text": "three"}]')
        one = call(1)
        history = (user("?"), answer("one"), user("go"), answer("", "x", one), result(one))
        assert (await self.ask(model, *history)).content == (TextPart(text="three"),)
        assert (await self.ask(model, *history[:3])).stop == "calls"
        assert (await self.ask(model, *history[:1])).content == (TextPart(text="one"),)

    async def test_past_the_end_is_final(self, stack: AsyncExitStack) -> None:
        error = await self.fail(await self.model(stack, "[]"), user("?"))
        assert (error.error_class, error.retryable) == ("script_exhausted", False)

    @pytest.mark.parametrize(
        ("error_class", "retryable"),
        [
            ("rate_limited", True),
            ("overloaded", True),
            ("timeout", True),
            ("cut_stream", True),
            ("malformed", True),
            ("empty", True),
            ("internal", True),
            ("unauthenticated", False),
            ("not_found", False),
            ("bad_request", False),
            ("context_overflow", False),
            ("refused", False),
        ],
    )
    async def test_L6_failures_have_their_class(
        self, stack: AsyncExitStack, error_class: str, retryable: bool
    ) -> None:
        model = await self.model(stack, f'[{{"error": {{"class": "{error_class}"}}}}]')
        error = await self.fail(model, user("?"))
        assert (error.error_class, error.retryable) == (error_class, retryable)
        assert str(error)

    async def test_L6_a_failure_that_gives_way_is_tried_again(self, stack: AsyncExitStack) -> None:
        error = '{"class": "overloaded", "times": 2, "retry_after_ms": 40}'
        model = await self.model(stack, f'[{{"text": "at last", "error": {error}}}]')
        assert [(await self.fail(model, user("?"))).retry_after_ms for _ in range(2)] == [40, 40]
        assert (await self.ask(model, user("?"))).content == (TextPart(text="at last"),)

    async def test_C66_the_wish_to_wait_is_capped(self, stack: AsyncExitStack) -> None:
        error = '{"class": "rate_limited", "retry_after_ms": 1000000000000}'
        model = await self.model(stack, f'[{{"error": {error}}}]')
        assert (await self.fail(model, user("?"))).retry_after_ms == limits.RETRY_CAP_MS

    async def test_a_cancelled_request_ends_at_once(self, stack: AsyncExitStack) -> None:
        text = "word " * 40
        model = await self.model(stack, f'[{{"text": "{text}", "delay_ms": 200000}}]')
        fast = await self.model(stack, f'[{{"text": "{text}", "delay_ms": 20}}]')
        begun = asyncio.Event()
        body = model.render(self.asking(user("?")))
        first = asyncio.create_task(fast.send(body, lambda delta: begun.set()))
        second = asyncio.create_task(model.send(body, lambda delta: None))
        await begun.wait()
        await first
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(second, 5)

    async def test_requests_at_once_do_not_meet(self, stack: AsyncExitStack) -> None:
        entries = ", ".join(f'{{"text": "reply {n}"}}' for n in range(20))
        model = await self.model(stack, f"[{entries}]")
        again: list[Message] = [answer("x"), user("?")]
        histories: list[list[Message]] = [[user("?"), *again * n] for n in range(20)]
        replies = await asyncio.gather(*(self.ask(model, *history) for history in histories))
        texts = [reply.content for reply in replies]
        assert texts == [(TextPart(text=f"reply {n}"),) for n in range(20)]

    async def test_rendering_is_deterministic_and_exact(self, stack: AsyncExitStack) -> None:
        model = await self.model(stack, "[]")
        one = call(1)
        request = self.asking(user("?"), answer("hm", self.provider, one), result(one, "out"))
        body = model.render(request)
        assert body == model.render(replace(request, blobs={"0" * 64: b"unused"}))
        others = [
            replace(request, system_prompt="Be long."),
            replace(request, tools=()),
            replace(request, messages=request.messages[:1], thinking="high"),
            replace(request, output_tokens_max=5),
            replace(request, messages=request.messages[:1]),
            replace(request, messages=(*request.messages[:2], result(one, "other"))),
            self.asking(
                user("?"),
                replace(answer("hm", self.provider, one), interrupted=True),
                result(one, "out"),
            ),
            replace(request, model=ModelRef(provider=self.provider, name="m-2")),
        ]
        bodies = [model.render(other) for other in others]
        assert len({body, *bodies}) == len(bodies) + 1
        assert "/" in model.renderer

    async def test_what_cannot_be_loaded_is_unavailable(self, stack: AsyncExitStack) -> None:
        model = await self.model(stack, "[]")
        image = blob(PNG, "image/png")
        request = self.asking(UserMessage((ImagePart(blob=image), TextPart(text="?"))))
        loaded = replace(request, blobs={image.sha256: PNG})
        assert b"[unavailable: " in model.render(request)
        assert b"[unavailable: " not in model.render(loaded)

    async def test_law_5_a_call_without_result_is_never_rendered(
        self, stack: AsyncExitStack
    ) -> None:
        model = await self.model(stack, "[]")
        dangling = AssistantMessage((), (call(1),), self.provider)
        with pytest.raises(AssertionError):
            model.render(self.asking(user("?"), dangling, user("go")))
