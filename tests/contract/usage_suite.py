"""What views promise of usage: sums that are exact, however often a fact is told."""

from dataclasses import replace

from tests.contract.views_suite import Parts, apply
from tests.helpers.events import LOCAL, OTHER, event_id, thread_id
from threadlog import ids
from threadlog.ids import Position, TenantId
from threadlog.ports.usage import (
    UsageFact,
    UsageRow,
    UsageTotals,
)
from threadlog.ports.views import ViewBatch

PRICED, FREE = "gpt", "local"


def fact(n: int, *, tenant: TenantId = LOCAL) -> UsageFact:
    """Fact `n` of a made-up week: two threads, two models of which one has no price."""
    thread = thread_id(n % 2)
    return UsageFact(
        event_id=event_id(n),
        position=Position(n + 1),
        tenant_id=tenant,
        thread_id=thread,
        turn_id=ids.turn_id(thread, n // 6),
        step=n // 2 % 3,
        attempt=1,
        provider="openai",
        model=PRICED if n % 3 else FREE,
        input=2**40 + n,
        output=n,
        cache_read=2 * n,
        cache_write=3 * n,
        reasoning=4 * n,
        cost_micros=5 * n if n % 3 else None,
        occurred_at=f"2026-11-{n // 20 + 10}T23:59:59.999Z",
    )


def sums(facts: list[UsageFact]) -> UsageTotals:
    prices = [f.cost_micros for f in facts if f.cost_micros is not None]
    return UsageTotals(
        steps=len({(f.turn_id, f.step) for f in facts}),
        input=sum(f.input for f in facts),
        output=sum(f.output for f in facts),
        cache_read=sum(f.cache_read for f in facts),
        cache_write=sum(f.cache_write for f in facts),
        reasoning=sum(f.reasoning for f in facts),
        cost_micros=sum(prices) if prices else None,
    )


class UsageSuite:
    """Inherit beside `ViewsSuite`: it uses the same fixture `parts`."""

    async def test_usage_sums_are_exact_in_every_grouping(self, parts: Parts) -> None:
        facts = [fact(n) for n in range(100)]
        foreign = [fact(n, tenant=OTHER) for n in range(200, 210)]
        await apply(parts, ViewBatch(Position(0), Position(300), usage=[*facts, *foreign]))
        usage = parts.views.usage
        assert await usage(LOCAL, ()) == [UsageRow((), sums(facts))]
        assert await usage(LOCAL, ("tenant",)) == [UsageRow((LOCAL,), sums(facts))]
        for thread in sorted({f.thread_id for f in facts}):
            mine = [f for f in facts if f.thread_id == thread]
            assert await usage(LOCAL, (), thread) == [UsageRow((), sums(mine))]
        keyed = {
            (f"openai/{model}", f"2026-11-{day}"): [
                f for f in facts if f.model == model and f.occurred_at[8:10] == str(day)
            ]
            for model in (PRICED, FREE)
            for day in range(10, 15)
        }
        assert await usage(LOCAL, ("model", "day")) == [
            UsageRow(group, sums(members)) for group, members in sorted(keyed.items())
        ]
        by_turn = await usage(LOCAL, ("thread", "turn"))
        assert sum(line.totals.steps for line in by_turn) == sums(facts).steps
        assert [line.group for line in by_turn] == sorted({(f.thread_id, f.turn_id) for f in facts})

    async def test_a_fact_told_again_counts_once(self, parts: Parts) -> None:
        """A rebuild of the views applies the same facts again."""
        for watermark in (10, 11, 12):
            batch = ViewBatch(Position(0), Position(watermark), usage=[fact(4), fact(5)])
            await apply(parts, batch)
        assert await parts.views.usage(LOCAL, ()) == [UsageRow((), sums([fact(4), fact(5)]))]

    async def test_attempts_of_one_step_are_one_step(self, parts: Parts) -> None:
        first, second = fact(1), fact(1)
        second = UsageFact(
            **{
                **{name: getattr(second, name) for name in UsageFact.__slots__},
                "position": Position(9),
                "attempt": 2,
            }
        )
        await apply(parts, ViewBatch(Position(0), Position(9), usage=[first, second]))
        [line] = await parts.views.usage(LOCAL, ("turn",))
        assert line.totals.steps == 1
        assert line.totals.output == 2 * first.output

    async def test_an_unknown_price_is_not_zero(self, parts: Parts) -> None:
        await apply(parts, ViewBatch(Position(0), Position(9), usage=[fact(3)]))
        [line] = await parts.views.usage(LOCAL, ("model",))
        assert line == UsageRow((f"openai/{FREE}",), sums([fact(3)]))
        assert line.totals.cost_micros is None

    async def test_F108_calls_add_time_and_no_step(self, parts: Parts) -> None:
        model = fact(1)
        call = replace(
            fact(2),
            turn_id=model.turn_id,
            step=9,
            thread_id=model.thread_id,
            input=0,
            output=0,
            cache_read=0,
            cache_write=0,
            reasoning=0,
            cost_micros=None,
            tool_ms=1_234,
            occurred_at="2026-11-11T01:30:00.000Z",
        )
        foreign = replace(fact(7, tenant=OTHER), tool_ms=99)
        batch = ViewBatch(Position(0), Position(9), usage=[model, call, foreign])
        await apply(parts, batch)
        assert await parts.views.usage(LOCAL, ()) == [UsageRow((), sums([model]), 1_234)]
        hours = await parts.views.usage(LOCAL, ("hour",))
        assert [(line.group, line.totals.steps, line.tool_ms) for line in hours] == [
            (("2026-11-10T23",), 1, 0),
            (("2026-11-11T01",), 0, 1_234),
        ]

    async def test_without_facts_there_is_no_line(self, parts: Parts) -> None:
        assert await parts.views.usage(LOCAL, ()) == []
        assert await parts.views.usage(LOCAL, ("model",)) == []
