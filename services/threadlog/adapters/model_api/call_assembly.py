"""Tool calls put together from the pieces that a stream brings, in the model's order.

Ids are kept as the provider gave them, missing or repeated: ours are derived elsewhere (law 1).
Arguments are the model's own text, whether JSON or not.
"""

import json
from dataclasses import dataclass, field

from threadlog import limits
from threadlog.adapters.model_api.failures import malformed, too_large
from threadlog.adapters.model_api.json_text import whole
from threadlog.events.step import ModelCall


@dataclass(slots=True)
class _Open:
    index: object
    provider_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class CallAssembly:
    """The calls of one reply while they arrive."""

    def __init__(self) -> None:
        self._calls: list[_Open] = []

    def add(self, pieces: object) -> int:
        """`pieces` (the member `tool_calls`) are joined to their calls.

        Units:   the result counts the bytes of name and arguments that came.
        Raises:  ModelError: malformed, or more calls than a step may have.
        """
        if not isinstance(pieces, list):
            raise malformed("the reply's tool calls are not a list")
        return sum(self._add(piece) for piece in pieces)

    def build(self) -> tuple[ModelCall, ...]:
        """All calls, as far as they came."""
        return tuple(
            ModelCall(
                provider_call_id=whole(call.provider_id),
                name=whole(call.name),
                arguments=whole("".join(call.arguments)),
            )
            for call in self._calls
        )

    def _add(self, piece: object) -> int:
        if not isinstance(piece, dict):
            raise malformed("a tool call of the reply is not an object")
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        provider_id = short("id", piece.get("id"), limits.PROVIDER_CALL_ID_CHARS_MAX)
        name = short("name", function.get("name"), limits.TOOL_NAME_CHARS_MAX)
        call = self._find(piece.get("index"), provider_id, name)
        call.provider_id = call.provider_id or provider_id
        if name != call.name:  # some servers repeat the whole name with each piece
            call.name = short("name", call.name + name, limits.TOOL_NAME_CHARS_MAX)
        arguments = _arguments(function.get("arguments"))
        call.arguments.append(arguments)
        return len(name) + len(arguments.encode("utf-8", "surrogatepass"))

    def _find(self, index: object, provider_id: str, name: str) -> _Open:
        """The call that a piece belongs to: by index, or the last one where there is none.

        A new id together with a name begins another call even under an index that was used:
        some servers number every call 0.
        """
        begins = bool(provider_id or name)
        if not isinstance(index, int):
            found = self._calls[-1] if self._calls and not begins else None
        else:
            found = next((call for call in reversed(self._calls) if call.index == index), None)
            if found and name and provider_id not in ("", found.provider_id):
                found = None
        if found is None:
            if len(self._calls) == limits.CALLS_PER_STEP_MAX:
                raise too_large(f"the reply has more than {limits.CALLS_PER_STEP_MAX} tool calls")
            found = _Open(index)
            self._calls.append(found)
        return found


def short(what: str, value: object, chars_max: int) -> str:
    """The id or name that `value` is, empty where it is none.

    Raises:  ModelError: malformed, it is longer than any that is meant seriously.
    """
    text = value if isinstance(value, str) else ""
    if len(text) > chars_max:
        raise malformed(f"the {what} of a tool call has {len(text)} characters")
    return text


def _arguments(value: object) -> str:
    """The text of the arguments; a server that sends the object itself gets it as text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
