"""Message lists as transcripts hold them: builders for examples, strategies for any."""

import hashlib

import orjson
from hypothesis import strategies as st

from threadlog.events.content import (
    BlobRef,
    FilePart,
    ImagePart,
    ModelRef,
    NativePart,
    OutputPart,
    TextPart,
    ThinkingPart,
)
from threadlog.ids import CallId, derive
from threadlog.ports.model import ModelRequest, ToolSpec
from threadlog.thread.messages import (
    AssistantMessage,
    Message,
    MessageCall,
    ToolMessage,
    UserMessage,
)

CLI = ToolSpec(
    name="cli",
    description="Run a command line.",
    parameters='{"properties":{"command":{"type":"string"}},"required":["command"],"type":"object"}',
)
OPENAI = ModelRef(provider="openai", name="gpt-test")
ANTHROPIC = ModelRef(provider="anthropic", name="claude-test")
PNG = b"\x89PNG\r\n\x1a\n0000"
PDF = b"%PDF-1.7 not much"


def request_of(*messages: Message, model: ModelRef = OPENAI) -> ModelRequest:
    """A request with the one tool and no blobs."""
    return ModelRequest(model=model, system_prompt="Be brief.", tools=(CLI,), messages=messages)


def user(text: str) -> UserMessage:
    return UserMessage((TextPart(text=text),))


def answer(text: str, provider: str = "openai", *calls: MessageCall) -> AssistantMessage:
    return AssistantMessage((TextPart(text=text),) if text else (), calls, provider)


def call(number: int, arguments: str = '{"command":"ls"}', name: str = "cli") -> MessageCall:
    return MessageCall(CallId(derive("test", number)), name, arguments)


def result(of: MessageCall, text: str = "ok") -> ToolMessage:
    return ToolMessage(of.call_id, of.name, text, is_error=False)


def blob(content: bytes, media_type: str) -> BlobRef:
    sha256 = hashlib.sha256(content).hexdigest()
    return BlobRef(sha256=sha256, bytes=len(content), media_type=media_type)


texts = st.text(st.characters(codec="utf-8"), max_size=30)
CONTENTS = (PNG, PDF, b"", b"plain text", b"\xff\xfe", b"nul \0 byte")
contents = st.sampled_from(CONTENTS)
media_types = st.sampled_from(
    ["image/png", "image/jpeg", "image/svg+xml", "application/pdf", "text/plain; charset=utf-8"]
)
blobs = st.builds(blob, contents, media_types)
texts_or_blobs = texts | st.builds(blob, contents, st.just("text/plain"))
user_parts = st.one_of(
    st.builds(TextPart, text=texts_or_blobs),
    st.builds(ImagePart, blob=blobs),
    st.builds(FilePart, name=texts, blob=blobs),
)
NATIVE = {
    "openai": ['{"reasoning_details":[{"type":"x"}]}', '{"refusal":"no"}', '{"content":"mine"}'],
    "anthropic": ['{"type":"redacted_thinking","data":"abc"}'],
}
arguments = st.one_of(
    st.dictionaries(texts, texts, max_size=3).map(lambda value: orjson.dumps(value).decode()),
    st.sampled_from(['{"command": "l', "ls -l", "[1]", '"{}"', "", " ", "null", ' {"a": 1} ']),
    texts_or_blobs,
)


@st.composite
def output_parts(draw: st.DrawFn, provider: str) -> OutputPart:
    kind = draw(st.sampled_from(["text", "thinking", "native"]))
    if kind == "text":
        return TextPart(text=draw(texts_or_blobs))
    if kind == "thinking":
        return ThinkingPart(text=draw(texts_or_blobs), signature=draw(st.none() | texts))
    blocks = st.sampled_from([*NATIVE.get(provider, []), "not json", "[]", "{}"])
    return NativePart(provider=provider, json_text=draw(blocks))


@st.composite
def exchanges(draw: st.DrawFn, number: int) -> tuple[Message, ...]:
    """An assistant message with the results of its calls, or one that broke off."""
    provider = draw(st.sampled_from(["openai", "anthropic", "scripted"]))
    parts = tuple(draw(st.lists(output_parts(provider), max_size=3)))
    if draw(st.booleans()):
        return (AssistantMessage(parts, (), provider, interrupted=draw(st.booleans())),)
    names = st.sampled_from(["cli", "no such tool", "x" * 300, ""])
    ids = [CallId(derive("call", number, n)) for n in range(draw(st.integers(1, 3)))]
    calls = tuple(MessageCall(call_id, draw(names), draw(arguments)) for call_id in ids)
    results = [
        ToolMessage(c.call_id, c.name, draw(texts_or_blobs), draw(st.booleans()))
        for c in draw(st.permutations(calls))
    ]
    return (AssistantMessage(parts, calls, provider), *results)


@st.composite
def requests(draw: st.DrawFn) -> ModelRequest:
    """Any request that a transcript can lead to; some of its blobs cannot be loaded."""
    messages: list[Message] = []
    for number in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            messages.append(UserMessage(tuple(draw(st.lists(user_parts, max_size=3)))))
        else:
            messages += draw(exchanges(number))
    kept = draw(st.sets(st.sampled_from(CONTENTS)))
    return ModelRequest(
        model=OPENAI,
        system_prompt=draw(st.none() | texts),
        tools=draw(st.sampled_from([(), (CLI,)])),
        messages=tuple(messages),
        thinking=draw(st.sampled_from([None, "none", "low", "medium", "high"])),
        output_tokens_max=draw(st.none() | st.sampled_from([1, 1_500, 4_000, 100_000])),
        blobs={hashlib.sha256(content).hexdigest(): content for content in kept},
    )
