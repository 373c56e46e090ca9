"""Which models a process can ask, and which one a new thread gets, by what is set."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.model_messages import request_of, user
from threadlog.bootstrap.models import (
    PROVIDERS,
    MissingModel,
    close_models,
    fingerprints,
    load_models,
    model_choice,
)
from threadlog.errors import ModelError, UsageError
from threadlog.events.content import ModelRef
from threadlog.settings import Settings, load_settings

NOWHERE = "http://127.0.0.1:9"
OPENAI = {"OPENAI_BASE_URL": f"{NOWHERE}/v1"}
ANTHROPIC = {"ANTHROPIC_API_KEY": "canary-7f3a"}
MODELS = {"OPENAI_MODEL": "small", "ANTHROPIC_MODEL": "claude-small"}
CLUSTER = {"THREADLOG_KAFKA__BOOTSTRAP": "kafka:9092"}
Given = Callable[[dict[str, str]], Settings]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """The settings, once these variables are set."""

    def load(variables: dict[str, str]) -> Settings:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return load_settings()

    return load


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "play.json"
    file.write_text('[{"text": "hi"}]')
    return file


def ref(both: str) -> ModelRef:
    provider, _, name = both.partition("/")
    return ModelRef(provider=provider, name=name)


async def refusal(settings: Settings, flag: str | None = None, script: Path | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        await model_choice(settings, flag, script)
    return str(caught.value)


@pytest.mark.parametrize(
    ("variables", "flag", "expected"),
    [
        (OPENAI, "gpt", "openai/gpt"),
        (ANTHROPIC, "claude", "anthropic/claude"),
        (ANTHROPIC, "anthropic/claude", "anthropic/claude"),
        (ANTHROPIC, "some/claude", "anthropic/some/claude"),
        (ANTHROPIC | MODELS, None, "anthropic/claude-small"),
        (OPENAI | MODELS, None, "openai/small"),
        (OPENAI | ANTHROPIC, "anthropic/claude", "anthropic/claude"),
        (OPENAI | ANTHROPIC, "openai/gpt", "openai/gpt"),
        (OPENAI | ANTHROPIC | {"THREADLOG_MODEL": "anthropic/x"}, None, "anthropic/x"),
        (OPENAI | ANTHROPIC | {"THREADLOG_MODEL": "anthropic/x"}, "openai/y", "openai/y"),
        (ANTHROPIC | MODELS | {"THREADLOG_MODEL": "x"}, None, "anthropic/x"),
        (CLUSTER, "anthropic/claude", "anthropic/claude"),
        (CLUSTER, "gpt", "openai/gpt"),
        (CLUSTER | ANTHROPIC, "claude", "anthropic/claude"),
        (CLUSTER, "scripted", "scripted/scripted"),
    ],
)
async def test_the_model_of_a_new_thread(
    given: Given, variables: dict[str, str], flag: str | None, expected: str
) -> None:
    assert await model_choice(given(variables), flag, None) == ref(expected)


async def test_a_script_is_a_provider_too(given: Given, script: Path) -> None:
    assert await model_choice(given({}), None, script) == ref("scripted/play")
    assert await model_choice(given(ANTHROPIC), "scripted", script) == ref("scripted/scripted")
    assert await model_choice(given(ANTHROPIC), "claude", script) == ref("anthropic/claude")


@pytest.mark.parametrize("variables", [OPENAI | ANTHROPIC, OPENAI | ANTHROPIC | MODELS])
async def test_with_both_providers_the_flag_is_required_and_named(
    given: Given, variables: dict[str, str]
) -> None:
    said = await refusal(given(variables))
    assert "--model" in said
    assert "openai/NAME or anthropic/NAME" in said
    assert "--model openai/x or anthropic/x" in await refusal(given(variables), "x")


async def test_a_script_beside_a_provider_needs_the_flag(given: Given, script: Path) -> None:
    said = await refusal(given(ANTHROPIC), None, script)
    assert "--model" in said
    assert "scripted, anthropic" in said


@pytest.mark.parametrize(
    ("variables", "flag", "said"),
    [
        ({}, None, "ANTHROPIC_API_KEY"),
        ({}, None, "OPENAI_API_KEY"),
        ({}, None, "--script"),
        (OPENAI, "anthropic/claude", "ANTHROPIC_API_KEY"),
        (ANTHROPIC, "openai/gpt", "OPENAI_BASE_URL"),
        ({}, "gpt", "OPENAI_API_KEY"),
        (ANTHROPIC, "scripted/x", "--script"),
        ({"ANTHROPIC_BASE_URL": NOWHERE}, None, "--model"),
        ({"ANTHROPIC_BASE_URL": "nowhere"}, None, "ANTHROPIC_BASE_URL"),
    ],
)
async def test_what_is_missing_is_named(
    given: Given, variables: dict[str, str], flag: str | None, said: str
) -> None:
    assert said in await refusal(given(variables), flag)


async def test_an_adapter_is_loaded_for_each_provider_that_is_set(
    given: Given, script: Path
) -> None:
    settings = given(OPENAI | ANTHROPIC)
    models = await load_models(settings, script)
    await close_models(models)
    assert tuple(models) == PROVIDERS
    assert [model.renderer for model in models.values()] == [
        "scripted/1",
        "openai-chat/1",
        "anthropic-messages/1",
    ]


async def test_none_is_loaded_that_is_not_set(given: Given) -> None:
    assert await load_models(given({}), None) == {}
    models = await load_models(given(ANTHROPIC), None)
    await close_models(models)
    assert list(models) == ["anthropic"]


def test_fingerprints_tell_addresses_and_keys_apart_and_hold_neither(given: Given) -> None:
    first = fingerprints(given(OPENAI | ANTHROPIC), None)
    assert list(first) == ["openai", "anthropic"]
    assert fingerprints(given({}), None) == first
    other = fingerprints(given({"ANTHROPIC_API_KEY": "another"}), None)
    assert other["openai"] == first["openai"]
    assert other["anthropic"] != first["anthropic"]
    assert "canary" not in str(first)


async def test_a_provider_that_is_missing_says_how_to_set_it() -> None:
    model = MissingModel()
    body = model.render(request_of(user("?"), model=ref("anthropic/claude")))
    with pytest.raises(ModelError, match="anthropic is not configured") as failure:
        await model.send(body, lambda delta: None)
    assert "ANTHROPIC_API_KEY" in str(failure.value)
    assert (failure.value.error_class, failure.value.retryable) == ("unauthenticated", False)
