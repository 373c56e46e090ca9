"""Plain tables. Pure."""

from collections.abc import Sequence

from threadlog.cli.plain import cells


def aligned(lines: Sequence[tuple[str, ...]], texts: int | None = None) -> list[str]:
    """The lines with their columns one below the other; behind the first `texts` come numbers."""
    widths = [max(cells(line[n]) for line in lines) for n in range(len(lines[0]))]

    def cell(place: int, text: str) -> str:
        room = " " * (widths[place] - cells(text))
        return text + room if texts is None or place < texts else room + text

    return ["  ".join(cell(*entry) for entry in enumerate(line)).rstrip() for line in lines]
