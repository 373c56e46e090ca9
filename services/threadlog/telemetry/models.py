"""The metrics of model requests. Providers and models that nobody configured are `other`."""

from collections.abc import Iterable

from threadlog.events.content import ModelRef, Usage
from threadlog.telemetry.labels import ATTEMPT_OUTCOMES
from threadlog.telemetry.registry import OTHER, Children, Registry, known

_OUTCOMES = frozenset(ATTEMPT_OUTCOMES)


class ModelMetrics:
    """Attempts, their times and their tokens."""

    def __init__(self, registry: Registry) -> None:
        self._attempts = Children(registry.counter("threadlog_model_attempts_total"))
        self._seconds = Children(registry.histogram("threadlog_model_attempt_duration_seconds"))
        self._first = Children(registry.histogram("threadlog_model_first_chunk_seconds"))
        self._tokens = Children(registry.counter("threadlog_model_tokens_total"))
        self._known: frozenset[tuple[str, str]] = frozenset()
        self._providers: frozenset[str] = frozenset()

    def allow(self, models: Iterable[ModelRef], providers: Iterable[str]) -> None:
        """These have labels of their own, and are shown from the start."""
        self._known = frozenset((model.provider, model.name) for model in models)
        self._providers = frozenset(providers)
        for provider, name in self._known:
            for outcome in ("ok", "interrupted"):
                self._attempts[provider, name, outcome].inc(0)

    def attempt(self, model: ModelRef, outcome: str, seconds: float) -> None:
        """One attempt came to this end."""
        labels = self._labels(model)
        self._attempts[(*labels, known(outcome, _OUTCOMES))].inc()
        self._seconds[labels].observe(seconds)

    def first_chunk(self, model: ModelRef, seconds: float) -> None:
        """The first piece of a response came, so long after the request was sent."""
        self._first[self._labels(model)].observe(seconds)

    def tokens(self, model: ModelRef, usage: Usage) -> None:
        """The provider has counted these."""
        labels, tokens = self._labels(model), self._tokens
        tokens[(*labels, "input")].inc(usage.input)
        tokens[(*labels, "output")].inc(usage.output)
        tokens[(*labels, "cache_read")].inc(usage.cache_read)
        tokens[(*labels, "cache_write")].inc(usage.cache_write)
        tokens[(*labels, "reasoning")].inc(usage.reasoning)

    def _labels(self, model: ModelRef) -> tuple[str, str]:
        found = (model.provider, model.name)
        if found in self._known:
            return found
        return known(model.provider, self._providers), OTHER
