"""The code that rendered a past request, by the name that its manifest recorded. Loads no SDK."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from threadlog.adapters.model_api import anthropic_wire, openai_wire, scripted
from threadlog.ports.model import ModelRequest, Renderer


@dataclass(frozen=True, slots=True)
class _Wire:
    """Implements `ports.model.Renderer`."""

    renderer: str
    rendered: Callable[[ModelRequest], bytes]

    def render(self, request: ModelRequest) -> bytes:
        return self.rendered(request)


def renderer_named(name: str) -> Renderer | None:
    """The renderer of this name; None: it is not one of this version."""
    if name == scripted.RENDERER:
        return _Wire(name, scripted.render)
    if name == anthropic_wire.RENDERER:
        return _Wire(name, anthropic_wire.render)
    dialect = openai_wire.dialect_of(name)
    if dialect is not None:
        return _Wire(name, partial(openai_wire.render, dialect=dialect))
    return None
