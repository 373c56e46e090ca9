"""JSON from providers: strict parsing first, and repair of what small servers get wrong."""

import json

import orjson

from threadlog.adapters.model_api.failures import malformed


def loads(data: bytes) -> object:
    """The value of `data`; lone surrogates stay in its text until `whole` mends them.

    Raises:  ModelError: malformed.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        # Takes an emoji cut into two chunks, which orjson rightly refuses.
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise malformed("a piece of the reply is not JSON") from None


def whole(text: str) -> str:
    """`text` with the halves of characters joined, and lone ones replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def member_texts(text: str) -> dict[str, str]:
    """Each member of the JSON object that `text` is, its value as it stands there, to the byte.

    Raises:  ModelError: malformed, also where it is nested too deeply.
    """
    found: dict[str, str] = {}
    try:
        at = _past_space(text, _past_space(text, 0) + 1)
        while text[at] != "}":
            name, at = _DECODER.raw_decode(text, at)
            start = _past_space(text, _past_space(text, at) + 1)
            _, at = _DECODER.raw_decode(text, start)
            found[name] = text[start:at]
            at = _past_space(text, at)
            if text[at] == ",":
                at = _past_space(text, at + 1)
    except (ValueError, RecursionError, IndexError):
        raise malformed("a piece of the reply cannot be kept as it is") from None
    return found


_DECODER = json.JSONDecoder()


def _past_space(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at
