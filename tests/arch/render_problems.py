"""docs/problems.md, from the table of problems.

Run as `python tests/arch/render_problems.py --write` or `--check`.
"""

import sys
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.arch.tree import ROOT
from threadlog.api.problems import PROBLEM_TYPE, PROBLEMS

TARGET = ROOT / "docs/problems.md"

MORE: Final[dict[str, str]] = {
    "cursor_unknown": "`oldest_seq`, `head_seq`",
    "quota_exceeded": "`limit`; header `Retry-After`",
}
"""Members that only some problems have."""

HEADER = f"""# Problems

Written by `tests/arch/render_problems.py` from `services/threadlog/api/problems.py`; do not edit.

Whatever goes wrong is told as one object (RFC 9457): over HTTP as `{PROBLEM_TYPE}`, in a live
stream in a frame named `problem`, from the command line on stdout where `--json` was given.

| member | what it says |
|---|---|
| `type` | `urn:threadlog:problem:<code>` |
| `title` | the kind, in words |
| `status` | the HTTP status |
| `detail` | what is wrong, and what to do where that is known |
| `instance`, `trace_id` | the request, where it came with a `traceparent`; else null |
| `code` | stable, from the table below |
| `retryable` | the same request may work later |
| `errors` | a list: `field`, the path of a member, parameter or header, and `message` |

Nothing that was sent is repeated in one. A write that ends in a 5xx may be in the log: send it
again with the same `Idempotency-Key`. Every problem that may pass has `Retry-After`, but for 409.

| status | code | title | when | retry | more |
|---|---|---|---|---|---|
"""


def render() -> str:
    """The text of docs/problems.md as it must be now."""
    lines = [
        f"| {row.status} | `{code}` | {row.title} | {row.meaning} "
        f"| {'yes' if row.retryable else 'no'} | {MORE.get(code, '')} |"
        for code, row in sorted(PROBLEMS.items(), key=lambda item: item[1].status)
    ]
    return HEADER + "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Writes the document, or says whether it is stale."""
    match arguments:
        case ["--write"]:
            TARGET.write_text(render())
            return 0
        case ["--check"]:
            is_current = TARGET.exists() and TARGET.read_text() == render()
            if not is_current:
                print("docs/problems.md is stale: render_problems.py --write", file=sys.stderr)
            return not is_current
        case _:
            print("usage: render_problems.py --write|--check", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
