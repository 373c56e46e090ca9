"""The form of a record of `<prefix>.usage`: facts of one tenant, from one partition of the log.

What keeps counting exact: a record holds every fact of its tenant and partition between two
positions, in their order, and it is sent only when every fact before them has been acknowledged.
So the first copies of facts lie in the order of the log, whatever repeats lie between them. The key
of a record is the tenant.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from threadlog.errors import RecordError
from threadlog.ids import Partition
from threadlog.limits import USAGE_RECORD_FACTS_MAX
from threadlog.ports.usage import UsageFact

Amount = Literal[
    "steps",
    "input",
    "output",
    "cache_read",
    "cache_write",
    "reasoning",
    "cost_micros",
    "tool_ms",
]
AMOUNTS: tuple[Amount, ...] = Amount.__args__  # type: ignore[attr-defined]  # a Literal's values
_Count = Annotated[int, Field(ge=0)]


class _Read(BaseModel):
    # A newer version may say more; what is not known here is passed over.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class UsageEntry(_Read):
    """One fact. `kind`: what it measures. Amounts that are left out are 0.

    Units:   `offset` of the event in its partition; `at_ms`: when the broker took it, Unix time;
             `steps` 1: the first fact of its step; millionths of a US dollar; milliseconds.
    """

    event_id: str
    offset: _Count
    at_ms: _Count
    kind: Literal["model", "tool"]
    steps: _Count = 0
    input: _Count = 0
    output: _Count = 0
    cache_read: _Count = 0
    cache_write: _Count = 0
    reasoning: _Count = 0
    cost_micros: _Count = 0
    tool_ms: _Count = 0


class UsageRecord(_Read):
    """One record. `topic_id` and `partition`: of the log that the facts are from."""

    tenant_id: str
    topic_id: str
    partition: _Count
    facts: tuple[UsageEntry, ...]


def encode_usage(
    facts: Sequence[UsageFact], topic_id: str, partition: Partition
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Key and value of the records that tell these facts, which are in the order of the log.

    They come in rounds: each is acknowledged before the next is sent.
    """
    by_tenant: dict[str, list[UsageFact]] = {}
    for fact in facts:
        by_tenant.setdefault(fact.tenant_id, []).append(fact)
    longest = max(map(len, by_tenant.values()), default=0)
    for first in range(0, longest, USAGE_RECORD_FACTS_MAX):
        yield [
            (tenant.encode(), _value(tenant, topic_id, partition, some))
            for tenant, told in by_tenant.items()
            if (some := told[first : first + USAGE_RECORD_FACTS_MAX])
        ]


def decode_usage(key: bytes | None, value: bytes | None) -> UsageRecord:
    """The record.

    Raises:  RecordError: it is none, or its tenant is not its key's.
    """
    try:
        record = UsageRecord.model_validate_json(value or b"")
    except ValidationError:
        raise RecordError("no usage record") from None
    if record.tenant_id.encode() != key:
        raise RecordError("the tenant of a usage record is not its key")
    return record


def _value(tenant: str, topic_id: str, partition: Partition, facts: Sequence[UsageFact]) -> bytes:
    return orjson.dumps(
        {
            "tenant_id": tenant,
            "topic_id": topic_id,
            "partition": partition,
            "facts": [_entry(fact) for fact in facts],
        }
    )


def _entry(fact: UsageFact) -> dict[str, object]:
    amounts = {
        "steps": int(fact.begins_step),
        "input": fact.input,
        "output": fact.output,
        "cache_read": fact.cache_read,
        "cache_write": fact.cache_write,
        "reasoning": fact.reasoning,
        "cost_micros": fact.cost_micros,
        "tool_ms": fact.tool_ms,
    }
    return {
        "event_id": fact.event_id,
        "offset": fact.position - 1,
        "at_ms": fact.appended_ms,
        "kind": "model" if fact.tool_ms is None else "tool",
        **{name: amount for name, amount in amounts.items() if amount},
    }
