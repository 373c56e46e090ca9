"""F89: the AsyncAPI document is valid, whole in itself, and says what the topics really are."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from jsonschema import Draft202012Validator

from tests.helpers.embedded import embedded, scripted
from tests.helpers.kafka import make_config, make_topics
from tests.helpers.logs import DEADLINE_S
from tests.helpers.outside import tool
from tests.helpers.samples import ONE_OF_EACH
from threadlog.adapters.kafka.headers import encode
from threadlog.bootstrap.asyncapi import asyncapi
from threadlog.events.catalog import BODIES
from threadlog.events.envelope import Body

HERE = Path(__file__).parent
DOCUMENT = asyncapi()


def faults(document: dict[str, Any], folder: Path) -> list[str]:
    path = folder / "asyncapi.json"
    path.write_text(json.dumps(document))
    packages = tool("dclint").parents[1]
    command = ["node", str(HERE / "asyncapi.cjs"), str(packages), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=25, check=True)
    return done.stdout.splitlines()


def test_F89_the_parser_of_asyncapi_finds_no_fault(tmp_path: Path) -> None:
    assert faults(DOCUMENT, tmp_path) == []


def test_F89_the_parser_of_asyncapi_is_asked_for_real(tmp_path: Path) -> None:
    channels = {"events": {**DOCUMENT["channels"]["events"], "surprise": 1}}
    assert any("surprise" in line for line in faults({**DOCUMENT, "channels": channels}, tmp_path))


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    """Of a schema whose references point into the document."""
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.TYPE)
def test_F89_a_record_is_what_the_document_says(body: type[Body]) -> None:
    message = DOCUMENT["components"]["messages"][f"{body.TYPE}.{body.VERSION}"]
    record = encode(ONE_OF_EACH[body.TYPE])
    headers = {name: value.decode() for name, value in record.headers}
    validator(message["headers"]).validate(headers)
    assert set(headers) <= set(message["headers"]["properties"])
    validator(message["payload"]).validate(json.loads(record.value))
    key = DOCUMENT["channels"]["events"]["x-key"]
    validator(key).validate(record.key.decode())
    foreign = {**headers, "ce_type": "something.else"}
    assert not validator(message["headers"]).is_valid(foreign)


async def test_F89_topics_are_made_as_the_document_says(kafka_bootstrap: str) -> None:
    config = make_config(kafka_bootstrap, partitions=3)
    await make_topics(config)
    prefix = config.events_topic.rpartition(".")[0]
    client = AdminClient({"bootstrap.servers": kafka_bootstrap})
    shapes = client.list_topics(timeout=DEADLINE_S).topics
    assert {f"{prefix}.{name}" for name in DOCUMENT["channels"]} == {
        topic for topic in shapes if topic.startswith(f"{prefix}.")
    }
    for name, channel in DOCUMENT["channels"].items():
        topic, kafka = f"{prefix}.{name}", channel["bindings"]["kafka"]
        # By default there are 16 of the log, and 8 of what metering has.
        count = {16: 3, 8: 3, 1: 1}[kafka["partitions"]]
        assert len(shapes[topic].partitions) == count
        resource = ConfigResource(ResourceType.TOPIC, topic)
        live = await asyncio.wrap_future(client.describe_configs([resource])[resource])
        for setting, value in kafka["topicConfiguration"].items():
            wanted = ",".join(value) if isinstance(value, list) else str(value)
            assert live[setting].value == wanted, (topic, setting)


async def test_F89_the_document_says_who_writes_what(short_dir: Path) -> None:
    """Every event of a real turn with a call comes from who the document says."""
    told = {
        (name.partition(".")[0], message["$ref"].rpartition("/")[2])
        for name, operation in DOCUMENT["operations"].items()
        if name.endswith(".append")
        for message in operation["messages"]
    }
    calls = '{"text": "", "calls": ["read a", "read"]}'
    async with embedded(short_dir / "log.db", scripted(calls, '{"text": "done"}')) as runtime:
        turn = await runtime.turn("go")
        events = [event for event, _ in await runtime.judged(turn.thread_id)]
    seen = {(event.source, f"{event.type}.{event.version}") for event in events}
    assert seen <= told, sorted(seen - told)
    assert {source for source, _ in seen} == {"gateway", "planner", "tool_runner"}
    assert {name for _, name in told} == {f"{body.TYPE}.{body.VERSION}" for body in BODIES}
