"""The program as a function of its arguments: one line and the right code for what is wrong."""

import io
import json
from pathlib import Path

import pytest

from tests.arch.tree import ROOT
from tests.helpers.json_schema import findings
from threadlog.cli.main import main
from threadlog.cli.running import read_prompt, read_system
from threadlog.cli.usage import parse_groups
from threadlog.errors import UsageError
from threadlog.version import VERSION

PROBLEM = json.loads((ROOT / "schemas/cli/problem.schema.json").read_text())


@pytest.fixture(autouse=True)
def no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a log, and a person at the keyboard who says nothing."""
    monkeypatch.setenv("THREADLOG_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("rnu x", "Did you mean 'run'"),
        ("thread shwo last", "Did you mean 'show'"),
        ("run x --thred last", "--thread"),
        ("thread ls --limt 3", "--limit"),
        ("thread ls --limit 0", "--limit"),
        ("thread ls --limit many", "--limit"),
        ("thread show", "THREAD"),
        ("thread tail last --until yesterday", "turn"),
        ("run x --script nowhere.json", "nowhere.json"),
        ("run x --workspace nowhere", "nowhere"),
        ("run x --max-steps 0", "--max-steps"),
        ("run x --copy --thread last", "--copy"),
        ("run x", "--script FILE"),
        ("run x --script s.json --system nowhere.md", "nowhere.md"),
        ("usage --by moon", "tenant, thread, turn, model, day"),
        ("usage --json --csv", "exclude each other"),
        ("scripted-model nowhere.json", "nowhere.json"),
        ("scripted-model s.json --quirk odd", "no-usage"),
        ("scripted-model s.json --port 99999999", "--port"),
        ("version --jsn", "--json"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_fix(
    line: str, says: str, no_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (no_log / "s.json").write_text('[{"text": "hello"}]')
    if line == "run x":
        line = "run x --copy"
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" or "--json" in line
    assert err.count("\n") == 1
    assert err.startswith("threadlog: ")
    assert says in err


@pytest.mark.parametrize("verb", ["show", "tail", "tree"])
def test_last_without_a_thread_says_how_to_begin(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["thread", verb, "last"]) == 5
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert 'threadlog run "PROMPT"' in err


def test_lists_without_a_log_are_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["thread", "ls"]) == 0
    assert main(["usage"]) == 0
    assert main(["usage", "--csv"]) == 0
    out, _ = capsys.readouterr()
    assert out.splitlines() == [
        "model,steps,input,output,cache_read,cache_write,reasoning,cost_micros,tool_ms"
    ]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("thread show last --json", 5),
        ("thread tail last --json", 5),
        ("thread show last --json --nope", 2),
        ("usage --by moon --json", 2),
        ("run --json --model nowhere/x --copy hello", 2),
    ],
)
def test_F83_a_failing_command_prints_one_problem_object(
    line: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == code
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    problem = json.loads(out)
    assert not findings(problem, PROBLEM)
    assert problem["detail"] in err


def test_an_unknown_setting_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THREADLOG_MODLE", "x")
    assert main(["thread", "ls"]) == 2
    assert "did you mean THREADLOG_MODEL?" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["", "thread"])
def test_without_a_command_there_is_help_and_a_usage_code(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Examples:\n")


@pytest.mark.parametrize("line", ["--help", "run --help", "thread tree -h", "doctor --help"])
def test_help_opens_with_examples(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 0
    assert capsys.readouterr().out.startswith("Examples:\n")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == main(["version"]) == 0
    assert capsys.readouterr().out == f"threadlog {VERSION}\n" * 2
    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == VERSION


class Stdin:
    """Standard input that holds these bytes."""

    def __init__(self, data: bytes, *, is_terminal: bool = False) -> None:
        self.buffer = io.BytesIO(data)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize("argument", [None, "-"])
def test_the_prompt_comes_from_standard_input(
    argument: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Stdin("Grüße\n\n".encode()))
    assert read_prompt(argument) == "Grüße"


@pytest.mark.parametrize(
    ("argument", "data", "is_terminal", "says"),
    [
        (None, b"", True, "no prompt"),
        (None, b"", False, "empty"),
        ("-", b" \n", False, "empty"),
        ("", b"ignored", False, "empty"),
        ("-", b"\xff\xfe", False, "not UTF-8"),
        ("-", b"x" * (1024 * 1024 + 1), False, "longer than"),
        ("half \udcff", b"", True, "not UTF-8"),
    ],
)
def test_a_prompt_that_is_none_is_refused(
    argument: str | None,
    data: bytes,
    is_terminal: bool,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", Stdin(data, is_terminal=is_terminal))
    with pytest.raises(UsageError, match=says):
        read_prompt(argument)


def test_an_argument_wins_over_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Stdin(b"not this"))
    assert read_prompt("this") == "this"


def test_the_system_prompt_is_a_file_or_a_text(no_log: Path) -> None:
    (no_log / "brief.md").write_text("be brief\n")
    assert read_system(None) is None
    assert read_system("brief.md") == "be brief\n"
    assert read_system("You are kind.") == "You are kind."
    assert read_system("a/b\nc") == "a/b\nc"
    assert read_system("x" * 5_000) == "x" * 5_000
    (no_log / "latin.txt").write_bytes(b"\xff")
    for wrong in ("nowhere.md", "./nowhere", "latin.txt"):
        with pytest.raises(UsageError, match="--system"):
            read_system(wrong)


def test_groups_may_be_several() -> None:
    assert parse_groups("day, model") == ("day", "model")
    with pytest.raises(UsageError, match="one of"):
        parse_groups("day,")
