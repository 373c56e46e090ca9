"""Whom a rendered body asks: every wire form here begins with the name of the model."""

import re

import orjson

_MODEL = re.compile(rb'\{"model":("(?:[^"\\]|\\.)*")')


def model_name(body: bytes) -> str:
    """The name of the model that a rendered body asks."""
    found = _MODEL.match(body)
    if found is None:
        raise ValueError("this body was not rendered here")
    name: str = orjson.loads(found[1])
    return name
