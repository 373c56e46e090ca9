"""The page of faults is the table's, and every row of the table is planted by a test."""

import re

from tests.arch.render_doctor import ABOUT, TARGET, render
from tests.arch.tree import ROOT
from tests.helpers.doctor import faults
from threadlog.bootstrap.doctor.report import GROUPS, PAGE


def test_the_document_is_current() -> None:
    assert TARGET.read_text() == render(), "run: python tests/arch/render_doctor.py --write"


def test_F106_every_row_is_planted_by_a_test() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name in faults() if f'"{name}"' not in tests]


def test_F106_every_fault_has_evidence_and_a_fix() -> None:
    for row in faults().values():
        assert row.level in ("warn", "fail")
        assert row.evidence, row
        assert row.fix, row


def test_every_link_of_a_finding_leads_to_a_heading() -> None:
    assert ROOT / PAGE == TARGET
    headings = re.findall(r"^## (.+)$", TARGET.read_text(), re.MULTILINE)
    assert tuple(headings) == GROUPS
    assert tuple(ABOUT) == GROUPS


def test_the_table_names_no_machine() -> None:
    text = TARGET.read_text()
    assert "/tmp" not in text
    assert not re.search(r"127\.0\.0\.1:\d", text)
