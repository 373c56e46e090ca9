"""Which checks there are for these settings, in their order, and running them."""

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from threadlog.bootstrap.doctor import machine, models
from threadlog.bootstrap.doctor.hidden import hidden
from threadlog.bootstrap.doctor.report import Check, Told, examine, off_loop
from threadlog.bootstrap.embedded import make_tools
from threadlog.bootstrap.keys import open_keys
from threadlog.clock import Clock
from threadlog.errors import ThreadlogError
from threadlog.ports.tools import Finding
from threadlog.settings import Settings, ToolRunnerSettings
from threadlog.thread.state import FOLD_VERSION
from threadlog.version import VERSION


async def diagnose(
    settings: Settings,
    wrong: Sequence[str],
    clock: Clock,
    *,
    is_live: bool = False,
    on_slow: Callable[[str], None] = lambda _: None,
) -> tuple[Told, ...]:
    """All findings about these settings; of which `wrong` is what could not be used.

    Shapes:  with an address of a gateway that one is asked, and nothing of this machine.
    Units:   about `DOCTOR_CHECK_MS` at most. `is_live`: providers of models are asked, too.
    """
    checks = [Check("config", "settings", lambda: _config(settings, wrong))]
    if settings.url is not None:
        # What a cluster or a gateway needs is loaded only where there is one.
        from threadlog.bootstrap.doctor.gateway import gateway

        checks.append(Check("gateway", "reach", lambda: gateway(settings)))
        return await examine(checks, hidden(settings), on_slow)
    tail = [
        Check("sandbox", "sandbox", lambda: _sandbox(settings)),
        Check("models", "models", lambda: models.models(settings)),
        *([Check("models", "live", models.live)] if is_live else []),
        Check("keys", "keys", lambda: _keys(settings, clock)),
    ]
    if not settings.is_cluster:
        checks += [*_disks(settings), *_embedded(settings), *tail]
        return await examine(checks, hidden(settings), on_slow)
    from threadlog.bootstrap.doctor.cluster import cluster_checks

    async with cluster_checks(settings, clock) as (log, skew):
        checks += [*_disks(settings), *log, *tail, *skew]
        return await examine(checks, hidden(settings), on_slow)


async def _config(settings: Settings, wrong: Sequence[str]) -> Sequence[Finding]:
    found = [Finding("fail", "setting", text, _correction(text)) for text in wrong]
    where = settings.url or settings.kafka.bootstrap or str(settings.log_file())
    if settings.is_cluster and settings.url is None:
        try:
            settings.check_cluster()
        except ThreadlogError as error:
            fix = "set it as the message says: docs/settings.md has them all"
            found.append(Finding("fail", "cluster", str(error), fix))
    if not found:
        found.append(Finding("ok", "settings", f"all are known; the log is {where}"))
    python = ".".join(map(str, sys.version_info[:3]))
    version = f"threadlog {VERSION}, fold {FOLD_VERSION}, Python {python}"
    return [*found, Finding("ok", "version", version)]


def _correction(text: str) -> str:
    if "did you mean" in text:
        return "rename it, or unset it"
    return "correct it, or unset it: docs/settings.md has them all"


def _disks(settings: Settings) -> list[Check]:
    """One check for each folder that is written to, where it is not the same as another."""
    folders = [("data folder", settings.data_folder(), "THREADLOG_DATA_DIR")]
    if not settings.is_cluster and settings.log.file is not None:
        folders.append(("log folder", settings.log_file().parent, "THREADLOG_LOG__FILE"))
    if settings.tool_runner.workspaces is not None:
        workspaces = settings.workspaces_folder()
        folders.append(("workspaces", workspaces, "THREADLOG_TOOL_RUNNER__WORKSPACES"))
    try:
        blobs = settings.blobs_folder()
    except ThreadlogError:
        blobs = None  # the check of the settings tells
    if settings.is_cluster and blobs is not None:
        folders.append(("blobs folder", blobs, "THREADLOG_BLOBS__URL"))
    return [
        Check("disk", name, lambda name=name, at=at, key=key: machine.disk(name, at, key))  # type: ignore[misc]  # bound now
        for name, at, key in folders
    ]


def _embedded(settings: Settings) -> list[Check]:
    return [
        Check("log", "file", lambda: machine.log_file(settings)),
        Check("log", "runtime", lambda: machine.runtime(settings)),
    ]


async def _sandbox(settings: Settings) -> Sequence[Finding]:
    # In folders that go again, where the workspace's own user may pass: nothing is left behind.
    with tempfile.TemporaryDirectory(prefix="threadlog-doctor-") as folder:
        Path(folder).chmod(0o711)
        changes = {"data_dir": Path(folder), "tool_runner": ToolRunnerSettings()}
        findings = await make_tools(settings.model_copy(update=changes)).check()
    if not settings.is_cluster:
        return findings
    # A tool-runner refuses to start without it; whether one is to run here is not known.
    return [
        replace(finding, level="warn", fix=f"where a tool-runner runs: {finding.fix}")
        if finding.level == "fail"
        else finding
        for finding in findings
    ]


async def _keys(settings: Settings, clock: Clock) -> Sequence[Finding]:
    path = settings.keys_file()
    try:
        records = await off_loop(open_keys(settings, clock).records)
    except ThreadlogError as error:
        fix = "let the gateway's user own it, with mode 600, or restore it: until then no key opens"
        return [Finding("fail", "keys file", str(error), fix)]
    active = sum(record.is_active(clock.now_ms()) for record in records)
    if active:
        return [Finding("ok", "keys file", f"{path}: {active} valid")]
    evidence = f"{path}: {'no key that is valid' if records else 'there is no key'}"
    if records or settings.is_cluster:
        fix = "run `threadlog keys create --tenant TENANT --name NAME`"
        return [Finding("warn", "keys file", evidence, fix)]
    return [Finding("ok", "keys file", f"{evidence}; only programs need one")]
