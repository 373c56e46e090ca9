"""Every error and every verdict ends a command with the code that SURFACES 2 gives it."""

from typing import get_args

import pytest

from threadlog import errors
from threadlog.cli.documents import ProblemDocument
from threadlog.cli.failures import ExitCode, exit_code, verdict_code
from threadlog.errors import ModelError, ThreadlogError
from threadlog.events.turn import Verdict

CODES: dict[type[ThreadlogError], int] = {
    errors.RejectedError: 1,
    errors.UsageError: 2,
    errors.NotFoundError: 5,
    errors.MismatchError: 1,
    errors.RefusedError: 1,
    errors.UnauthenticatedError: 4,
    errors.ScopeMissingError: 4,
    errors.DeniedError: 4,
    errors.CursorInvalidError: 1,
    errors.CursorUnknownError: 1,
    errors.BodyTooLargeError: 1,
    errors.BodyTimeoutError: 1,
    errors.MediaTypeError: 1,
    errors.ConflictError: 6,
    errors.ThreadNewerError: 6,
    errors.TurnOpenError: 6,
    errors.VoidError: 6,
    errors.LateError: 6,
    errors.InFlightError: 6,
    errors.TransientError: 3,
    errors.LogUnavailableError: 3,
    errors.LockedError: 3,
    errors.ViewsRebuildingError: 3,
    errors.ViewsBehindError: 3,
    errors.QuotaError: 7,
    errors.CorruptError: 1,
    errors.RecordError: 1,
    errors.LogFileError: 1,
    errors.HistoryTruncatedError: 1,
}


def every_error() -> set[type[ThreadlogError]]:
    found: set[type[ThreadlogError]] = set()
    waiting: list[type[ThreadlogError]] = [ThreadlogError]
    while waiting:
        for cls in waiting.pop().__subclasses__():
            found.add(cls)
            waiting.append(cls)
    return {cls for cls in found if cls.__module__ == "threadlog.errors"}


def test_the_table_names_every_error() -> None:
    assert every_error() == {*CODES, ModelError}


@pytest.mark.parametrize(("error", "code"), CODES.items(), ids=str)
def test_an_error_ends_with_its_code(error: type[ThreadlogError], code: int) -> None:
    assert exit_code(error("what went wrong")) == code


@pytest.mark.parametrize(
    ("error_class", "retryable", "code"),
    [("unauthenticated", False, 4), ("rate_limited", True, 3), ("bad_request", False, 1)],
)
def test_a_model_error_ends_by_its_class(error_class: str, retryable: bool, code: int) -> None:
    error = ModelError("no", error_class=error_class, retryable=retryable)
    assert exit_code(error) == code
    assert ProblemDocument.of(error).retryable is retryable


def test_every_verdict_has_its_code() -> None:
    codes = {verdict: int(verdict_code(verdict, by_us=False)) for verdict in get_args(Verdict)}
    assert codes == {
        "completed": 0,
        "cancelled": 1,
        "blocked": 1,
        "budget": 7,
        "max_tokens": 1,
        "error": 1,
        "interrupted": 1,
    }
    assert verdict_code("cancelled", by_us=True) == 130
    assert verdict_code("completed", by_us=True) == 0


def test_a_problem_says_code_title_detail_and_whether_to_retry() -> None:
    assert ProblemDocument.of(errors.NotFoundError("no thread x")).model_dump() == {
        "code": "not_found",
        "title": "Not found",
        "detail": "no thread x",
        "retryable": False,
    }
    assert ProblemDocument.of(errors.LockedError("held")).retryable


def test_F83_exit_codes_are_the_documented_ones() -> None:
    assert [int(code) for code in ExitCode] == [0, 1, 2, 3, 4, 5, 6, 7, 9, 130, 141, 143]
