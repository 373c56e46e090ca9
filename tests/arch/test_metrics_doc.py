"""The list of metrics is the table's, and the table keeps to its own rules."""

import re
from typing import get_args

from tests.arch.render_metrics import LABELS, TARGET, render
from threadlog.telemetry.table import ROWS, Name

FORBIDDEN = {"thread", "thread_id", "event_id", "user", "turn_id", "call_id", "workspace_id"}


def test_the_document_is_current() -> None:
    assert TARGET.read_text() == render(), "run: python tests/arch/render_metrics.py --write"


def test_names_and_rows_are_the_same() -> None:
    assert list(ROWS) == list(get_args(Name))


def test_names_say_their_kind_and_unit() -> None:
    for name, row in ROWS.items():
        assert re.fullmatch(r"threadlog(_[a-z0-9]+)+", name)
        assert name.endswith("_total") == (row.kind == "counter"), name
        assert row.kind != "histogram" or name.endswith("_seconds"), name


def test_labels_are_explained_and_none_names_a_thing() -> None:
    labels = {label for row in ROWS.values() for label in row.labels}
    assert labels == set(LABELS)
    assert not labels & FORBIDDEN
