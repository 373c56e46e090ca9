"""A JSON Schema validator for the keywords that our own schemas use; any other one is an error.

`undeclared`: a member that the schema does not name is a finding too, whatever the schema allows.
"""

import re
from collections.abc import Iterator

Json = dict[str, object] | list[object] | str | int | float | bool | None

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_IGNORED = {"$schema", "$id", "$defs", "title", "description", "default"}
_KNOWN = {
    *("type", "properties", "required", "additionalProperties", "propertyNames", "items"),
    *("anyOf", "enum", "const", "$ref", "pattern", "minimum"),
}


def findings(value: object, schema: dict[str, object], *, undeclared: bool = True) -> list[str]:
    """What is wrong with `value`, each with its path; empty when it fits."""
    return list(_findings(value, schema, schema, "$", undeclared=undeclared))


def _findings(
    value: object, schema: object, root: dict[str, object], path: str, *, undeclared: bool
) -> Iterator[str]:
    if schema is True:
        return
    assert isinstance(schema, dict), path
    unknown = schema.keys() - _KNOWN - _IGNORED
    assert not unknown, f"{path}: keywords {unknown}"
    if isinstance(ref := schema.get("$ref"), str):
        yield from _findings(value, _resolved(ref, root), root, path, undeclared=undeclared)
    yield from _own(value, schema, path)
    if isinstance(options := schema.get("anyOf"), list):
        tried = [
            list(_findings(value, option, root, path, undeclared=undeclared)) for option in options
        ]
        if all(tried):
            yield f"{path}: fits none: {tried}"
    if isinstance(value, dict):
        yield from _members(value, schema, root, path, undeclared=undeclared)
    if isinstance(value, list) and "items" in schema:
        for place, item in enumerate(value):
            yield from _findings(
                item, schema["items"], root, f"{path}[{place}]", undeclared=undeclared
            )


def _own(value: object, schema: dict[str, object], path: str) -> Iterator[str]:
    """What the keywords say that look at nothing inside the value."""
    kind = schema.get("type")
    if isinstance(kind, str):
        is_number = kind in ("integer", "number") and isinstance(value, bool)
        if not isinstance(value, _TYPES[kind]) or is_number:
            yield f"{path}: {value!r} is no {kind}"
    if isinstance(allowed := schema.get("enum"), list) and value not in allowed:
        yield f"{path}: {value!r} is none of {allowed}"
    if "const" in schema and value != schema["const"]:
        yield f"{path}: {value!r} is not {schema['const']!r}"
    pattern, least = schema.get("pattern"), schema.get("minimum")
    if isinstance(pattern, str) and isinstance(value, str) and not re.search(pattern, value):
        yield f"{path}: {value!r} does not match {pattern}"
    if isinstance(least, int) and isinstance(value, int) and value < least:
        yield f"{path}: {value} is less than {least}"


def _members(
    value: dict[str, object],
    schema: dict[str, object],
    root: dict[str, object],
    path: str,
    *,
    undeclared: bool,
) -> Iterator[str]:
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    yield from (f"{path}: {name} is missing" for name in required if name not in value)
    more = schema.get("additionalProperties", not undeclared or "properties" not in schema)
    for name, member in value.items():
        if "propertyNames" in schema:
            yield from _findings(name, schema["propertyNames"], root, path, undeclared=undeclared)
        if name not in properties and more is False:
            yield f"{path}: {name} is not declared"
            continue
        inner = properties.get(name, more)
        yield from _findings(member, inner, root, f"{path}.{name}", undeclared=undeclared)


def _resolved(ref: str, root: dict[str, object]) -> object:
    found: object = root
    for part in ref.removeprefix("#/").split("/"):
        assert isinstance(found, dict), ref
        found = found[part]
    return found
