"""The official SDKs, used plainly, read what our servers send: so it has the real wire shape."""

import json

import anthropic
import openai
import pytest

from tests.helpers.messages_server import MODEL_NAME, messages_server
from threadlog.adapters.model_api.script import parse_script
from threadlog.adapters.model_api.scripted_server import scripted_server

SCRIPT = """[{"text": "Grüße, a text that comes in more than one piece", "thinking": "hm",
    "calls": ["ls -l", {"name": "other", "arguments": {"a": [1, "x"]}, "id": "mine"}],
    "usage": {"input": 5, "output": 9, "cache_read": 2, "cache_write": 1, "reasoning": 4}}]"""
TEXT = "Grüße, a text that comes in more than one piece"
CALLS = [("cli", {"command": "ls -l"}), ("other", {"a": [1, "x"]})]


async def test_anthropics_sdk_reads_our_messages_server() -> None:
    async with (
        messages_server(parse_script(SCRIPT)) as server,
        anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0) as client,
    ):
        texts = []
        async with client.messages.stream(
            model="m-1",
            max_tokens=100,
            messages=[{"role": "user", "content": [{"type": "text", "text": "?"}]}],
        ) as stream:
            texts += [text async for text in stream.text_stream]
            message = await stream.get_final_message()
        listed = [model.id async for model in client.models.list()]
    assert "".join(texts) == TEXT
    assert len(texts) > 1
    thinking, text, *calls = message.content
    assert isinstance(thinking, anthropic.types.ThinkingBlock)
    assert isinstance(text, anthropic.types.TextBlock)
    assert (thinking.thinking, text.text) == ("hm", TEXT)
    uses = [call for call in calls if isinstance(call, anthropic.types.ToolUseBlock)]
    assert [(use.name, use.input) for use in uses] == CALLS
    assert uses[1].id == "mine"
    assert (message.stop_reason, message.model, message.role) == ("tool_use", "m-1", "assistant")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (5, 9)
    assert message.usage.cache_read_input_tokens == 2
    assert message.usage.cache_creation_input_tokens == 1
    assert message.usage.output_tokens_details
    assert message.usage.output_tokens_details.thinking_tokens == 4
    assert listed == [MODEL_NAME]


async def test_openais_sdk_reads_the_scripted_server() -> None:
    async with (
        scripted_server(parse_script(SCRIPT)) as url,
        openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client,
    ):
        async with client.chat.completions.stream(
            model="m-1",
            messages=[{"role": "user", "content": "?"}],
            stream_options={"include_usage": True},
        ) as stream:
            texts = [event.delta async for event in stream if event.type == "content.delta"]
            completion = await stream.get_final_completion()
        listed = [model.id async for model in client.models.list()]
    assert "".join(texts) == TEXT
    assert len(texts) > 1
    [choice] = completion.choices
    assert choice.message.content == TEXT
    assert [
        (call.function.name, json.loads(call.function.arguments))
        for call in choice.message.tool_calls or []
    ] == CALLS
    assert (choice.finish_reason, completion.model) == ("tool_calls", "m-1")
    assert completion.usage
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (8, 9)
    assert completion.usage.prompt_tokens_details
    assert completion.usage.prompt_tokens_details.cached_tokens == 2
    assert listed == ["scripted"]


@pytest.mark.parametrize(
    ("error_class", "expected"),
    [
        ("rate_limited", "RateLimitError"),
        ("overloaded", "OverloadedError"),
        ("unauthenticated", "AuthenticationError"),
        ("not_found", "NotFoundError"),
        ("bad_request", "BadRequestError"),
        ("context_overflow", "ContentTooLargeError"),
        ("refused", "PaymentRequiredError"),
        ("internal", "InternalServerError"),
        ("timeout", "GatewayTimeoutError"),
    ],
)
async def test_anthropics_sdk_knows_the_errors_of_our_messages_server(
    error_class: str, expected: str
) -> None:
    script = parse_script(f'[{{"error": {{"class": "{error_class}", "message": "so"}}}}]')
    async with (
        messages_server(script) as server,
        anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0) as client,
    ):
        with pytest.raises(anthropic.APIStatusError, match="so") as failure:
            await client.messages.create(
                model="m-1",
                max_tokens=100,
                messages=[{"role": "user", "content": [{"type": "text", "text": "?"}]}],
                stream=True,
            )
    assert type(failure.value).__name__ == expected
