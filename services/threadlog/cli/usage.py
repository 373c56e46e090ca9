"""`usage`: what was billed, exact, from the projection's facts."""

import csv
import io
from typing import get_args

from threadlog.bootstrap.reading import has_log, reading
from threadlog.cli.documents import Amounts
from threadlog.cli.names import find_thread
from threadlog.cli.plain import cut, one_line
from threadlog.cli.reading import open_reader
from threadlog.cli.tables import aligned
from threadlog.cli.terminal import Screen
from threadlog.cli.thread_documents import UsageDocument, UsageLine
from threadlog.errors import UsageError
from threadlog.ports.usage import (
    UsageGroup,
    UsageRow,
    UsageTotals,
)
from threadlog.settings import Settings

_AMOUNTS = ("input", "output", "cache_read", "cache_write", "reasoning")
GROUPS: tuple[UsageGroup, ...] = get_args(UsageGroup)


def parse_groups(text: str) -> tuple[UsageGroup, ...]:
    """The groupings that `text` names, with commas between.

    Raises:  UsageError: one of them is none.
    """
    chosen: list[UsageGroup] = []
    for word in text.split(","):
        found = next((group for group in GROUPS if group == word.strip()), None)
        if found is None:
            raise UsageError(f"--by {word.strip()!r}: it is one of {', '.join(GROUPS)}")
        chosen.append(found)
    return tuple(chosen)


async def usage(
    settings: Settings,
    screen: Screen,
    by: tuple[UsageGroup, ...],
    *,
    thread: str | None,
    is_json: bool,
    is_csv: bool,
) -> None:
    """A line for each group, and one for all of them."""
    rows: list[UsageRow] = []
    if thread is not None:
        async with open_reader(settings) as reader:
            only = (await find_thread(reader, thread)).thread_id
            rows += await reader.views.usage(reader.tenant, by, only)
            rows += await reader.views.usage(reader.tenant, (), only)
    elif has_log(settings):
        async with reading(settings) as reader:
            rows += await reader.views.usage(reader.tenant, by)
            rows += await reader.views.usage(reader.tenant, ())
    *groups, total = rows or [UsageRow((), UsageTotals())]
    if is_json:
        lines = tuple(_line(by, row) for row in groups)
        screen.data(UsageDocument(by=by, lines=lines, total=_line((), total)).json_line())
    elif is_csv:
        _write_csv(screen, by, groups)
    else:
        _write_table(screen, by, groups, total)


def _line(by: tuple[UsageGroup, ...], row: UsageRow) -> UsageLine:
    group = dict(zip(by, row.group, strict=True))
    amounts = Amounts.of(row.totals)
    return UsageLine(group=group, steps=row.totals.steps, tool_ms=row.tool_ms, usage=amounts)


def _values(totals: UsageTotals) -> list[str]:
    amounts = [totals.steps, *(getattr(totals, name) for name in _AMOUNTS)]
    return [f"{amount}" for amount in amounts]


def _write_csv(screen: Screen, by: tuple[UsageGroup, ...], groups: list[UsageRow]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*by, "steps", *_AMOUNTS, "cost_micros", "tool_ms"])
    for row in groups:
        micros = row.totals.cost_micros
        group = [_cell(one_line(value)) for value in row.group]
        writer.writerow(
            [*group, *_values(row.totals), "" if micros is None else micros, row.tool_ms]
        )
    screen.data(text.getvalue().rstrip("\n"))


def _cell(text: str) -> str:
    """A spreadsheet takes no cell for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _write_table(
    screen: Screen, by: tuple[UsageGroup, ...], groups: list[UsageRow], total: UsageRow
) -> None:
    lines = [(*(name.upper() for name in by), "STEPS", *map(_title, _AMOUNTS), "COST", "TOOL S")]
    for row in groups:
        group = (one_line(value) or "-" for value in row.group)
        lines.append((*group, *_cells(row)))
    if not groups:
        screen.note("nothing was billed yet")
        return
    lines.append(("all", *[""] * (len(by) - 1), *_cells(total)))
    for line in aligned(lines, len(by)):
        screen.data(cut(line, screen.out.columns))


def _cells(row: UsageRow) -> tuple[str, ...]:
    tool_s = f"{row.tool_ms / 1_000:,.1f}"
    return (*map(_grouped, _values(row.totals)), _cost(row.totals), tool_s)


def _title(name: str) -> str:
    return name.upper().replace("_", " ")


def _grouped(value: str) -> str:
    return f"{int(value):,}"


def _cost(totals: UsageTotals) -> str:
    return "-" if totals.cost_micros is None else f"${totals.cost_micros / 1_000_000:,.6f}"
