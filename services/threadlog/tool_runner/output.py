"""The output of a call: what the model sees inline, and how it reads on. Pure."""

from threadlog.ids import CallId
from threadlog.limits import OUTPUT_HEAD_BYTES, OUTPUT_TAIL_BYTES


def inline_output(output: bytes, total: int, call: CallId) -> tuple[str, bool]:
    """The text for the event, and whether the whole output must be kept as a blob beside it.

    Shapes:  a long output is its head and its tail with a line between that says what was left out
             and which command reads on. `total` counts what the call wrote, kept or not.
    """
    if len(output) <= OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES and total <= len(output):
        return _text(output), False
    head, tail = output[:OUTPUT_HEAD_BYTES], output[-OUTPUT_TAIL_BYTES:]
    lines = output.count(b"\n") + 1
    first = head.count(b"\n") + 1
    left_out = total - len(head) - len(tail)
    kept = "" if total <= len(output) else f"; only the first {len(output)} bytes were kept"
    note = (
        f"\n[... {left_out} of {total} bytes left out{kept}. "
        f"Read on with: read @{call} {first}:{min(first + 200, lines)} (of {lines} lines) ...]\n"
    )
    return _text(head) + note + _text(tail), True


def output_lines(output: bytes, first: int, last: int) -> str:
    """Lines `first` to `last` of a stored output, counted from 1, each with its number."""
    lines = output.split(b"\n")
    chosen = lines[first - 1 : last]
    if not chosen:
        return f"[the output has {len(lines)} lines]"
    numbered = (f"{n}|{_text(line)}" for n, line in enumerate(chosen, start=first))
    return "\n".join(numbered)


def _text(data: bytes) -> str:
    """The bytes as text; a character cut in two at an end is shown as the replacement character."""
    return data.decode("utf-8", "replace")
