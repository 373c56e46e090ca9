"""The catalog as JSON Schema: one schema a type and version, and one for the envelope. Pure."""

from threadlog.events.catalog import SCHEMA_PREFIX, schema_urn
from threadlog.events.codec import ATTRIBUTES
from threadlog.events.envelope import Body, Event

DRAFT = "https://json-schema.org/draft/2020-12/schema"
Json = dict[str, object]
"""A schema: only its own keywords say what is in it."""


def body_schema(body: type[Body]) -> Json:
    """The schema of a body. Unknown members are allowed: readers pass them on."""
    schema = body.model_json_schema()
    return {"$schema": DRAFT, "$id": schema_urn(body.TYPE, body.VERSION), **schema}


def attribute_schemas() -> tuple[Json, list[str]]:
    """The attributes of an event as CloudEvents names them, and which are always there.

    Shapes:  those that structured and binary mode share; `data` and its like are not among them.
    """
    fields = Event.model_json_schema()["properties"]
    properties: Json = {"specversion": {"const": "1.0"}}
    for field, name in ATTRIBUTES.items():
        # A member that is None is absent on the wire.
        kinds = [kind for kind in fields[field].get("anyOf", []) if kind != {"type": "null"}]
        kept = {**fields[field], **(kinds[0] if kinds else {})}
        properties[name] = {k: v for k, v in kept.items() if k not in ("anyOf", "default", "title")}
    properties |= {
        "source": {"type": "string", "pattern": "^threadlog://."},
        "dataschema": {"type": "string", "pattern": f"^{SCHEMA_PREFIX}[a-z0-9._]+:[1-9][0-9]*$"},
        "partitionkey": {"type": "string", "description": "tenantid, a slash, subject"},
    }
    required = [
        ATTRIBUTES[f] for f, m in Event.model_fields.items() if m.is_required() and f in ATTRIBUTES
    ]
    return properties, [*required, "specversion", "dataschema", "partitionkey"]


def envelope_schema() -> Json:
    """The schema of an event on the wire, in structured mode."""
    properties, required = attribute_schemas()
    properties |= {
        "datacontenttype": {"const": "application/json"},
        "critical": {"const": True, "description": "absent where it is false"},
        "sequence": {"type": "string", "pattern": "^[0-9]{20}$", "description": "the seq"},
        "data": {"type": "object", "description": "the body; its schema is dataschema"},
        "data_base64": {"type": "string", "description": "the body's bytes, where one line cannot"},
    }
    return {
        "$schema": DRAFT,
        "$id": f"{SCHEMA_PREFIX}envelope",
        "title": "Event",
        "description": "One fact of one stream, as a structured CloudEvent.",
        "type": "object",
        "properties": properties,
        "required": sorted([*required, "datacontenttype"]),
        "oneOf": [{"required": ["data"]}, {"required": ["data_base64"]}],
    }
