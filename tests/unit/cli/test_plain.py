"""What a terminal is shown tells it to do nothing (RELIABILITY C61, SURFACES 1)."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadlog.cli.plain import cells, cut, json_plain, one_line, plain, visible

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x9b31mred", "red"),
        ("\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\", "click"),
        ("\x1b]52;c;cm0gLXJmIC8=\x07safe", "safe"),
        ("\x9d52;c;cm0gLXJmIC8=\x9csafe", "safe"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1bP+q544e\x1b\\dcs", "dcs"),
        ("\x1bcreset", "reset"),
        ("\x1b(Bcharset", "charset"),
        ("no end \x1b]52;c;abc", "no end \\x1b]52;c;abc"),
        ("half \x1b[31", "half \\x1b[31"),
        ("bell\x07 back\x08space", "bell\\x07 back\\x08space"),
        ("over\rwritten", "over\nwritten"),
        ("dos\r\nline", "dos\nline"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("turned \u202eabc", "turned \\u202eabc"),
        ("half a pair \ud83d", "half a pair \\ud83d"),
        ("Grüße, 世界", "Grüße, 世界"),
    ],
)
def test_C61_escapes_are_taken_out_or_spelt_out(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_C61_taking_one_sequence_out_makes_no_other() -> None:
    assert not CONTROL.search(plain("\x1b\x1b[m[31mred"))
    assert not CONTROL.search(plain("\x1b]0;a\x1b\\\x07\x1b[\x1b[mH"))


@given(st.text(alphabet=st.sampled_from("\x1b\x9b\x9d\x07\x9c\\[]PX^_;0m\x08\r\nab\u202e")))
def test_C61_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    assert not CONTROL.search(plain(text))
    assert not CONTROL.search(visible(text))
    assert "\n" not in one_line(text)


def test_a_long_text_of_openings_takes_linear_time() -> None:
    assert plain("\x1b]" * 200_000).count("\\x1b") == 200_000


def test_one_line_folds_white_space() -> None:
    assert one_line("  a\n\n\tb \x1b[1m c  ") == "a b c"


@given(st.text())
def test_json_keeps_its_value_and_shows_no_control_character(text: str) -> None:
    document = json.dumps({"text": text}, ensure_ascii=False)
    shown = json_plain(document)
    assert json.loads(shown) == {"text": text}
    assert not CONTROL.search(shown)


def test_json_white_space_stays_white_space() -> None:
    assert json.loads(json_plain('{"a":\r1}')) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("short", 10, "short"),
        ("exactly 10", 10, "exactly 10"),
        ("a little longer", 10, "a little …"),
        ("世界世界世界", 7, "世界世…"),
        ("not cut at all", None, "not cut at all"),
    ],
)
def test_lines_are_cut_to_columns(text: str, columns: int | None, shown: str) -> None:
    assert cut(text, columns) == shown
    assert columns is None or cells(shown) <= columns
