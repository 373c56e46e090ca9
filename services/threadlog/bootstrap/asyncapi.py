"""The topics of a cluster as an AsyncAPI document: what is in them, how, and who writes it.

It is whole in itself, so that a generator needs no second file. `threadlog topics apply` makes the
topics as the bindings say here; a test compares them with those of a real broker.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from threadlog.events.catalog import BODIES
from threadlog.events.envelope import Body
from threadlog.events.schemas import attribute_schemas, body_schema
from threadlog.ids import TENANT_PATTERN, UUID_PATTERN
from threadlog.limits import USAGE_PARTITIONS_MAX
from threadlog.ports.usage_log import UsageRecord
from threadlog.settings import KafkaSettings
from threadlog.version import VERSION

Json = dict[str, Any]
"""A part of the document: only its own keywords say what is in it."""
_KAFKA: Final = "0.5.0"
"""The version of the Kafka bindings."""
_PREFIX: Final = KafkaSettings.model_fields["prefix"].default
_PARTITIONS: Final = KafkaSettings.model_fields["partitions"].default
_USAGE_PARTITIONS: Final = min(_PARTITIONS, USAGE_PARTITIONS_MAX)
_WRITES: Final[Mapping[str, tuple[str, ...]]] = {
    "gateway": ("thread.", "message.", "cancel."),
    "planner": ("turn.", "step.", "model.", "tool.requested", "tool.finished"),
    "tool_runner": ("tool.started", "tool.released", "tool.finished", "file."),
}
"""Which types each source appends; the planner ends calls that never started."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One topic. `name`: as `<prefix>.<name>`; `partitions`: with the default settings."""

    name: str
    text: str
    key: Json
    partitions: int
    configuration: Mapping[str, object]
    messages: tuple[str, ...]


_KEPT: Final = {"cleanup.policy": ["delete"], "retention.ms": -1, "retention.bytes": -1}


def channels() -> tuple[Channel, ...]:
    """The topics, in the order of the document."""
    return (
        Channel(
            "events",
            "The log: the only truth. All records of a thread lie in one partition, murmur2 of the "
            "key; nothing is ever deleted or compacted.",
            {"type": "string", "pattern": f"^{TENANT_PATTERN}/{UUID_PATTERN}$"},
            _PARTITIONS,
            _KEPT,
            tuple(_name(body) for body in BODIES),
        ),
        Channel(
            "dead-letters",
            "Pointers to records that nobody can use, never their content. A pointer may come "
            "again: its key is the place that it points to.",
            {"type": "string", "pattern": "^.+:[0-9]+:[0-9]+$"},
            1,
            _KEPT,
            ("dead-letter",),
        ),
        Channel(
            "usage",
            "What was billed and how long calls ran, for metering: facts of one tenant from one "
            "partition of the log, in their order. Repeats come after a crash or a rebuild: the "
            "offset of a fact says which it is.",
            {"type": "string", "pattern": f"^{TENANT_PATTERN}$"},
            _USAGE_PARTITIONS,
            {**_KEPT, "compression.type": "gzip"},
            ("usage",),
        ),
        Channel(
            "metering-windows-changelog",
            "Metering's own table: the newest value of each key. Nobody else writes it.",
            {"type": "string"},
            _USAGE_PARTITIONS,
            {"cleanup.policy": ["compact"]},
            (),
        ),
    )


def asyncapi() -> Json:
    """The document, AsyncAPI 3.1."""
    found = channels()
    messages: Json = {}
    schemas: Json = {}
    for body in BODIES:
        name = _name(body)
        messages[name] = _message(body)
        schemas |= _hoisted(name, body_schema(body))
    messages["dead-letter"] = {
        "name": "dead-letter",
        "title": "A pointer to a record that nobody can use",
        "contentType": "application/json",
        "payload": _DEAD_LETTER,
    }
    messages["usage"] = {
        "name": "usage",
        "title": "Facts of one tenant from one partition of the log",
        "contentType": "application/json",
        "payload": {"$ref": "#/components/schemas/usage"},
    }
    schemas |= _hoisted("usage", UsageRecord.model_json_schema())
    return {
        "asyncapi": "3.1.0",
        "id": "urn:threadlog:asyncapi",
        "info": {
            "title": "Threadlog",
            "version": VERSION,
            "description": "AI agents as event-sourced threads: the topics of a cluster. "
            "CloudEvents 1.0 in the binary mode of its Kafka binding.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {channel.name: _channel(channel) for channel in found},
        "operations": dict(_operations()),
        "components": {"messages": messages, "schemas": schemas},
    }


def _channel(channel: Channel) -> Json:
    kafka: Json = {"bindingVersion": _KAFKA, "topicConfiguration": dict(channel.configuration)}
    kafka |= {
        "partitions": channel.partitions,
        "replicas": KafkaSettings.model_fields["replication"].default,
    }
    return {
        "address": f"{{prefix}}.{channel.name}",
        "description": channel.text,
        "parameters": {
            "prefix": {"default": _PREFIX, "description": "THREADLOG_KAFKA__PREFIX"},
        },
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in channel.messages},
        "bindings": {"kafka": kafka},
        "x-key": channel.key,
    }


def _message(body: type[Body]) -> Json:
    name = _name(body)
    key = {"type": "string", "description": "tenantid, a slash, the thread"}
    return {
        "name": name,
        "title": f"{body.TYPE}, version {body.VERSION}",
        "summary": (body.__doc__ or "").strip().partition("\n")[0],
        "contentType": "application/json",
        "headers": _headers(body),
        "payload": {"$ref": f"#/components/schemas/{name}"},
        "bindings": {"kafka": {"key": key, "bindingVersion": _KAFKA}},
    }


def _headers(body: type[Body]) -> Json:
    """The attributes of the event as headers, those of this type fixed."""
    properties, required = attribute_schemas()
    fixed = {"type": body.TYPE, "dataschema": body_schema(body)["$id"]}
    named = {f"ce_{name}": schema for name, schema in properties.items()}
    named |= {f"ce_{name}": {"const": value} for name, value in fixed.items()}
    if body.CRITICAL:
        named["ce_critical"] = {"const": "true"}
    named["content-type"] = {"const": "application/json"}
    always = [f"ce_{name}" for name in required]
    return {"type": "object", "properties": named, "required": sorted([*always, "content-type"])}


def _operations() -> Iterator[tuple[str, Json]]:
    for service, prefixes in _WRITES.items():
        written = [_name(body) for body in BODIES if body.TYPE.startswith(prefixes)]
        yield f"{service}.append", _operation("send", "events", f"What {service} appends.", written)
    for service in ("planner", "tool_runner", "projection"):
        text = f"{service} reads every record, in the order of the log."
        names = [_name(body) for body in BODIES]
        yield f"{service}.read", _operation("receive", "events", text, names)
    yield (
        "projection.dead-letter",
        _operation("send", "dead-letters", "Written by the projection alone.", ["dead-letter"]),
    )
    yield (
        "projection.usage",
        _operation("send", "usage", "Written before the views move.", ["usage"]),
    )
    yield "metering.read", _operation("receive", "usage", "Each fact is counted once.", ["usage"])


def _operation(kind: str, channel: str, summary: str, messages: list[str]) -> Json:
    return {
        "action": kind,
        "channel": {"$ref": f"#/channels/{channel}"},
        "summary": summary,
        "messages": [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in messages],
    }


def _name(body: type[Body]) -> str:
    return f"{body.TYPE}.{body.VERSION}"


def _hoisted(name: str, schema: Json) -> Json:
    """The schema and what it defines, each under a name of its own in the document."""
    schema = copy.deepcopy(schema)
    for word in ("$schema", "$id"):
        schema.pop(word, None)
    defined = schema.pop("$defs", {})
    found = {name: schema} | {f"{name}.{part}": inner for part, inner in defined.items()}
    for inner in found.values():
        _point(inner, name)
    return found


def _point(value: Any, name: str) -> None:
    """References to what a schema defines become references to where that lies now."""
    if isinstance(value, list):
        for inner in value:
            _point(inner, name)
    elif isinstance(value, dict):
        # Where OpenAPI has an object, AsyncAPI has a word: what it says, `oneOf` says too.
        value.pop("discriminator", None)
        for key, inner in value.items():
            if key == "$ref":
                value[key] = inner.replace("#/$defs/", f"#/components/schemas/{name}.")
            else:
                _point(inner, name)


_DEAD_LETTER: Final[Json] = {
    "type": "object",
    "required": ["topic", "topic_id", "partition", "offset", "reason", "code_version"],
    "properties": {
        "topic": {"type": "string"},
        "topic_id": {"type": "string"},
        "partition": {"type": "integer", "minimum": 0},
        "offset": {"type": "integer", "minimum": 0},
        "reason": {"type": "string"},
        "code_version": {"type": "string"},
    },
}
