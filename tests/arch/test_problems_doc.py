"""The page of problems is the table's, and the table has every error that a caller can meet."""

import re
from collections.abc import Iterator

from tests.arch.render_problems import MORE, TARGET, render
from threadlog.api.problems import PROBLEMS, problem_of
from threadlog.errors import ThreadlogError

FAMILIES = {"Rejected": (4,), "Conflict": (4,), "Transient": (4, 5), "Corrupt": (5,), "Model": (5,)}


def errors_of(root: type[ThreadlogError]) -> Iterator[type[ThreadlogError]]:
    for cls in root.__subclasses__():
        if cls.__module__ == ThreadlogError.__module__:
            yield cls
            yield from errors_of(cls)


def test_the_document_is_current() -> None:
    assert TARGET.read_text() == render(), "run: python tests/arch/render_problems.py --write"


def test_every_error_of_the_tree_has_its_row() -> None:
    codes = {cls.code for cls in errors_of(ThreadlogError)}
    assert codes <= set(PROBLEMS)
    others = set(PROBLEMS) - codes
    assert others == {"internal", "method_not_allowed", "headers_too_large", "overloaded"}


def test_a_row_fits_its_family() -> None:
    """4xx is the caller's fault, 5xx is ours; what may work later says so."""
    for cls in errors_of(ThreadlogError):
        [family] = [c.__name__ for c in cls.__mro__ if c.__base__ is ThreadlogError]
        row = PROBLEMS[cls.code]
        # What must not be served as things are is no fault of the caller, over HTTP.
        if cls.code not in ("history_truncated", "refused"):
            assert row.status // 100 in FAMILIES[family.removesuffix("Error")], cls
        assert row.retryable or family != "TransientError", cls


def test_codes_and_titles_are_in_words() -> None:
    for code, row in PROBLEMS.items():
        assert re.fullmatch("[a-z]+(_[a-z]+)*", code)
        assert row.title[0].isupper()
        assert "|" not in row.meaning
    assert set(MORE) <= set(PROBLEMS)


def test_the_code_of_a_problem_is_the_error_s_own() -> None:
    assert problem_of(ThreadlogError("x")).code == "internal"
