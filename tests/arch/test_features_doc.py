"""The list of features says what the tests prove, no more and no less."""

from tests.arch.render_features import TARGET, TITLE_CHARS_MAX, proofs, render, rows

ROWS_TOTAL = 126


def test_the_document_is_current() -> None:
    assert TARGET.read_text() == render(), "run: make docs"


def test_rows_are_complete_and_short() -> None:
    assert [row.row_id for row in rows()] == [f"F{n:02d}" for n in range(1, ROWS_TOTAL + 1)]
    assert not [row.row_id for row in rows() if len(row.title) > TITLE_CHARS_MAX]
    assert {row.wave for row in rows()} == {1, 2, 3}


def test_every_due_row_is_proven() -> None:
    proven = proofs()
    assert not [row.row_id for row in rows() if row.is_due and row.row_id not in proven]


def test_no_test_claims_a_row_that_is_not_there() -> None:
    assert proofs().keys() <= {row.row_id for row in rows()}
