"""`doctor`: each check's result with evidence and fix; the worst one sets the exit code."""

import shutil
from itertools import groupby

from threadlog.bootstrap.doctor.checks import diagnose
from threadlog.bootstrap.doctor.environment import salvage_settings
from threadlog.bootstrap.doctor.report import PAGE, Told
from threadlog.cli.documents import DoctorDocument
from threadlog.cli.failures import ExitCode
from threadlog.cli.plain import one_line
from threadlog.cli.terminal import Screen, Style
from threadlog.clock import SystemClock
from threadlog.ports.tools import Finding

_STYLES: dict[str, Style] = {"ok": "green", "warn": "yellow", "fail": "red"}


async def doctor(screen: Screen, *, url: str | None, is_live: bool, is_json: bool) -> ExitCode:
    """The findings are on stdout; FAILED when one of them is a failure.

    Raises:  UsageError: the address is none of a gateway.
    """
    settings, wrong = salvage_settings()
    told = await diagnose(
        settings.at(url),
        wrong,
        SystemClock(),
        is_live=is_live,
        on_slow=lambda name: waiting(screen, name),
    )
    document = DoctorDocument.of((*told, Told("terminal", _terminal(screen))))
    if is_json:
        screen.data(document.json_line())
    else:
        _show(screen, document)
    return ExitCode.FAILED if document.worst == "fail" else ExitCode.OK


def waiting(screen: Screen, name: str) -> None:
    """A person at a terminal is told what takes so long."""
    if screen.follows():
        screen.note(f"waiting for {name}")


def _terminal(screen: Screen) -> Finding:
    look = screen.out
    words = [
        screen.term or "no terminal",
        f"{shutil.get_terminal_size().columns} columns",
        "colours" if look.has_colour else "no colours",
        "Unicode" if look.has_unicode else "ASCII",
    ]
    return Finding("ok", "terminal", ", ".join(words))


def _show(screen: Screen, document: DoctorDocument) -> None:
    """A heading a group, a line a finding, and below it how it is mended."""
    for group, findings in groupby(document.findings, key=lambda finding: finding.group):
        screen.data(screen.out.paint(group, "bold"))
        for finding in findings:
            level = screen.out.paint(f"{finding.level:<4}", _STYLES[finding.level])
            screen.data(f"  {level}  {finding.check:<16} {one_line(finding.evidence)}")
            if finding.fix:
                screen.data(f"{'':<24} {screen.out.paint('fix:', 'bold')} {one_line(finding.fix)}")
    levels: list[str] = [finding.level for finding in document.findings]
    counts = ", ".join(f"{levels.count(level)} {level}" for level in _STYLES)
    screen.data(f"{counts}" + ("" if document.worst == "ok" else f"; more in {PAGE}"))
