"""The script of a scripted model: a JSON list of replies, read strictly.

The reply is chosen by the number of assistant messages in the request, so a script has no state
and serves any number of threads, before and after a restart. One member is the exception: an error
with `times` fails that often and then gives way to the rest of its entry; how often it has failed
is counted per exact request, in memory. Equal requests of two threads share that count; a success
and a restart begin it anew.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from threadlog import limits
from threadlog.errors import ModelError, UsageError
from threadlog.events.content import OutputPart, TextPart, ThinkingPart, Usage
from threadlog.events.step import ErrorClass, ModelCall, StopReason
from threadlog.thread.tool_text import TOOL_NAME

RETRYABLE: frozenset[ErrorClass] = frozenset(
    [
        "rate_limited",
        "overloaded",
        "timeout",
        "idle",
        "connection",
        "cut_stream",
        "malformed",
        "empty",
        "internal",
    ]
)
_ATTEMPTS_MAX = 10_000
"""Requests whose failures are counted at once; the oldest are forgotten first."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class ScriptCall(_Strict):
    """A call by name. `arguments`: an object, or the exact text, which need not be JSON."""

    name: str = Field(max_length=limits.TOOL_NAME_CHARS_MAX)
    arguments: dict[str, object] | str = Field(default_factory=dict)
    id: str | None = Field(default=None, max_length=limits.PROVIDER_CALL_ID_CHARS_MAX)


class ScriptUsage(_Strict):
    """Tokens by kind, as `events.content.Usage` counts them."""

    input: int = Field(default=0, ge=0)
    output: int = Field(default=0, ge=0)
    cache_read: int = Field(default=0, ge=0)
    cache_write: int = Field(default=0, ge=0)
    reasoning: int = Field(default=0, ge=0)


class ScriptError(_Strict):
    """A failure. `times` None: every time; else that often, then the entry's reply comes."""

    error_class: ErrorClass = Field(alias="class")
    times: int | None = Field(default=None, ge=1)
    message: str = "the script says so"
    retry_after_ms: int | None = Field(default=None, ge=0)


class ScriptReply(_Strict):
    """One entry. `calls`: command lines for the tool `cli`, or calls by name.

    Units:   `delay_ms` milliseconds from the request to the end of the reply.
    """

    text: str = ""
    thinking: str = ""
    calls: Annotated[
        tuple[str | ScriptCall, ...], Field(strict=False, max_length=limits.CALLS_PER_STEP_MAX)
    ] = ()
    stop: StopReason | None = None
    usage: ScriptUsage | None = None
    delay_ms: int = Field(default=0, ge=0)
    error: ScriptError | None = None

    def parts(self) -> tuple[OutputPart, ...]:
        """The content, without blank parts."""
        thinking = (ThinkingPart(text=self.thinking),) if self.thinking else ()
        return (*thinking, *((TextPart(text=self.text),) if self.text else ()))

    def model_calls(self, number: int) -> tuple[ModelCall, ...]:
        """The calls as a model writes them; `number` is the entry's, for the provider's ids."""
        return tuple(_call(call, f"script_{number}_{n}") for n, call in enumerate(self.calls))

    def stop_reason(self) -> StopReason:
        """`stop`, or what follows from the calls."""
        return self.stop or ("calls" if self.calls else "end")

    def tokens(self) -> Usage | None:
        """The usage as events record it."""
        return None if self.usage is None else Usage.model_validate(self.usage.model_dump())


@dataclass(frozen=True, slots=True)
class Script:
    """The replies in order; `source` names the file in errors."""

    replies: tuple[ScriptReply, ...]
    source: str = "script"


class ScriptPlayer:
    """Chooses replies; the only state is how often an error with `times` has come."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._failures: dict[bytes, int] = {}

    def reply(self, number: int, request: bytes) -> ScriptReply:
        """Entry `number`, counted from 0, for the exact bytes of `request`.

        Raises:  ModelError: the entry's own error, or script_exhausted past the end.
        """
        if number >= len(self.script.replies):
            raise ModelError(
                f"{self.script.source} has {len(self.script.replies)} replies, and "
                f"reply {number + 1} was asked for",
                error_class="script_exhausted",
                retryable=False,
            )
        entry = self.script.replies[number]
        if entry.error is not None and self._fails(entry.error, request):
            raise ModelError(
                entry.error.message,
                error_class=entry.error.error_class,
                retryable=entry.error.error_class in RETRYABLE,
                retry_after_ms=_capped(entry.error.retry_after_ms),
            )
        return entry

    def _fails(self, error: ScriptError, request: bytes) -> bool:
        if error.times is None:
            return True
        request_key = hashlib.sha256(request).digest()
        failed = self._failures.pop(request_key, 0)
        if failed >= error.times:
            return False
        if len(self._failures) >= _ATTEMPTS_MAX:
            self._failures.pop(next(iter(self._failures)))
        self._failures[request_key] = failed + 1
        return True


def load_script(path: Path) -> Script:
    """The script in the file at `path`.

    Raises:  UsageError: it cannot be read or is none; names the file, the entry and the member.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the script {path}: {error.strerror}") from None
    return parse_script(text, str(path))


def parse_script(text: bytes | str, source: str = "script") -> Script:
    """The script that `text` holds, a JSON list of replies.

    Raises:  UsageError: it is none; names `source`, the entry (counted from 1) and the member.
    """
    try:
        entries = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source} is no JSON: {error}") from None
    if not isinstance(entries, list):
        raise UsageError(f"{source} must be a JSON list of replies")
    try:
        replies = _ENTRIES.validate_python(entries)
    except ValidationError as error:
        raise UsageError(_explained(error, source)) from None
    for number, reply in enumerate(replies, 1):
        _check_reply(reply, f"{source}: reply {number}")
    return Script(replies=replies, source=source)


_ENTRIES = TypeAdapter(Annotated[tuple[ScriptReply, ...], Field(strict=False)])


def _check_reply(reply: ScriptReply, where: str) -> None:
    says_nothing = not (reply.text.strip() or reply.calls or reply.stop in ("length", "refusal"))
    if says_nothing and (reply.error is None or reply.error.times is not None):
        raise UsageError(f"{where} needs a text, calls, or an error without `times`")
    if reply.stop == "calls" and not reply.calls:
        raise UsageError(f"{where} stops for calls but has none")
    if reply.stop in ("end", "other") and reply.calls:
        raise UsageError(f"{where} has calls, so its stop is calls, length or refusal")


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is named twice")
    return members


def _explained(error: ValidationError, source: str) -> str:
    """The first finding as a sentence; a union reports each of its branches, so one is enough."""
    found = error.errors(include_url=False, include_context=False)[0]
    number, *path = found["loc"]
    names = [str(step) for step in path if not _is_branch(step)]
    member = f", {'.'.join(names)}" if names else ""
    return f"{source}: reply {int(number) + 1}{member}: {found['msg']}"


def _is_branch(step: int | str) -> bool:
    return isinstance(step, str) and (step in ("str", "ScriptCall") or step.startswith("dict["))


def _call(call: str | ScriptCall, fallback_id: str) -> ModelCall:
    if isinstance(call, str):
        arguments = _json({"command": call})
        return ModelCall(provider_call_id=fallback_id, name=TOOL_NAME, arguments=arguments)
    arguments = call.arguments if isinstance(call.arguments, str) else _json(call.arguments)
    provider_id = fallback_id if call.id is None else call.id
    return ModelCall(provider_call_id=provider_id, name=call.name, arguments=arguments)


def _json(value: Mapping[str, object]) -> str:
    return orjson.dumps(value).decode()


def _capped(wait_ms: int | None) -> int | None:
    return None if wait_ms is None else min(wait_ms, limits.RETRY_CAP_MS)
