"""The JSON Schemas of what `--json` prints; `schemas/cli/` is written from here."""

from collections.abc import Mapping
from typing import Any

from threadlog.cli.documents import (
    DoctorDocument,
    Document,
    ProblemDocument,
    RunDocument,
    SchemaListDocument,
    VersionDocument,
)
from threadlog.cli.keys import KeyDocument, KeyListDocument, NewKeyDocument
from threadlog.cli.thread_documents import (
    ShowDocument,
    ThreadsDocument,
    TreeDocument,
    UsageDocument,
    VerifyDocument,
)
from threadlog.cli.topics import TopicsDocument

JSON_SCHEMA = "https://json-schema.org/draft/2020-12/schema"

DOCUMENTS: Mapping[str, type[Document]] = {
    "doctor": DoctorDocument,
    "keys-create": NewKeyDocument,
    "keys-ls": KeyListDocument,
    "keys-revoke": KeyDocument,
    "problem": ProblemDocument,
    "run": RunDocument,
    "schema": SchemaListDocument,
    "thread-ls": ThreadsDocument,
    "thread-show": ShowDocument,
    "thread-tree": TreeDocument,
    "topics": TopicsDocument,
    "usage": UsageDocument,
    "usage-verify": VerifyDocument,
    "version": VersionDocument,
}


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a document."""
    schema = DOCUMENTS[name].model_json_schema(mode="serialization")
    return {"$schema": JSON_SCHEMA, "$id": f"urn:threadlog:schema:cli.{name}:1", **schema}
