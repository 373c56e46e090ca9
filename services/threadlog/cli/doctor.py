"""`doctor`: each check's result with evidence and fix; the worst one sets the exit code."""

import shutil

from threadlog.bootstrap.health import health
from threadlog.cli.documents import DoctorDocument
from threadlog.cli.failures import ExitCode
from threadlog.cli.plain import one_line
from threadlog.cli.terminal import Screen, Style
from threadlog.errors import UsageError
from threadlog.ports.tools import Finding
from threadlog.settings import Settings, load_settings

_STYLES: dict[str, Style] = {"ok": "green", "warn": "yellow", "fail": "red"}


async def doctor(screen: Screen, *, is_json: bool) -> ExitCode:
    """The findings are on stdout; FAILED when one of them is a failure."""
    findings = [*await _machine(), _terminal(screen)]
    document = DoctorDocument.of(tuple(findings))
    if is_json:
        screen.data(document.json_line())
    else:
        for finding in findings:
            _show(screen, finding)
    return ExitCode.FAILED if document.worst == "fail" else ExitCode.OK


async def _machine() -> tuple[Finding, ...]:
    try:
        settings = load_settings()
    except UsageError as error:
        # What is wrong is known; the rest is checked with what is left.
        broken = Finding("fail", "config", str(error), "correct or unset this variable")
        return (broken, *await health(Settings.model_construct()))
    return (
        Finding("ok", "config", f"log {settings.kafka.bootstrap or settings.log_file()}"),
        *await health(settings),
    )


def _terminal(screen: Screen) -> Finding:
    look = screen.out
    words = [
        screen.term or "no terminal",
        f"{shutil.get_terminal_size().columns} columns",
        "colours" if look.has_colour else "no colours",
        "Unicode" if look.has_unicode else "ASCII",
    ]
    return Finding("ok", "terminal", ", ".join(words))


def _show(screen: Screen, finding: Finding) -> None:
    level = screen.out.paint(f"{finding.level:<4}", _STYLES[finding.level])
    screen.data(f"{level}  {finding.check:<14} {one_line(finding.evidence)}")
    if finding.fix:
        screen.data(f"{'':<21} {screen.out.paint('fix:', 'bold')} {one_line(finding.fix)}")
