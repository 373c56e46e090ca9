"""What tokens cost, where the operator has said so. An unknown price is None, never 0."""

from collections.abc import Mapping
from dataclasses import dataclass

from threadlog.events.content import ModelRef, Usage


@dataclass(frozen=True, slots=True)
class Price:
    """Units: millionths of a US dollar for a million tokens of each kind."""

    input: int
    output: int
    cache_read: int
    cache_write: int


@dataclass(frozen=True, slots=True)
class Prices:
    """A price list; `version` names it on every step that was billed by it."""

    version: str
    models: Mapping[str, Price]

    def bill(self, model: ModelRef, usage: Usage | None) -> Usage | None:
        """The usage with its cost, when the list has the model (`provider/name`)."""
        price = self.models.get(f"{model.provider}/{model.name}")
        if usage is None or price is None:
            return usage
        cost = (
            usage.input * price.input
            + usage.output * price.output
            + usage.cache_read * price.cache_read
            + usage.cache_write * price.cache_write
        )
        cost_micros = -(-cost // 1_000_000)
        return usage.model_copy(update={"cost_micros": cost_micros, "price_version": self.version})


NO_PRICES = Prices("none", {})
