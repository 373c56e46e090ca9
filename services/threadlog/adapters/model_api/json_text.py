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
