"""`doctor`: what may be wrong here, with evidence and what to do. Works when half is broken."""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from threadlog.adapters.sqlite.file import open_read_only
from threadlog.adapters.sqlite.lock import read_holder
from threadlog.bootstrap.embedded import make_tools
from threadlog.bootstrap.keys import open_keys
from threadlog.clock import SystemClock
from threadlog.errors import NotFoundError, ThreadlogError
from threadlog.ports.tools import Finding
from threadlog.settings import AnthropicSettings, OpenAISettings, Settings

_CHECK_S = 10.0
_FREE_MIB_MIN = 100

Check = Callable[[Settings], Awaitable[tuple[Finding, ...]]]


async def health(settings: Settings) -> tuple[Finding, ...]:
    """Every check's findings, in a fixed order; a check that breaks or hangs is a finding itself.

    Units:   each check has 10 s.
    """
    findings: list[Finding] = []
    for name, check in _checks(settings):
        try:
            findings += await asyncio.wait_for(check(settings), _CHECK_S)
        except TimeoutError:
            findings.append(
                Finding("fail", name, f"no answer in {_CHECK_S:.0f} s", "see what hangs, try again")
            )
        except (ThreadlogError, OSError) as error:
            findings.append(Finding("fail", name, str(error), "see the message"))
    return tuple(findings)


async def _check_folders(settings: Settings) -> tuple[Finding, ...]:
    folder = settings.data_folder()
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return (
            Finding(
                "fail",
                "data folder",
                f"{existing} cannot be written by this user",
                "set THREADLOG_DATA_DIR to a folder of yours",
            ),
        )
    free = shutil.disk_usage(existing).free // 2**20
    if free < _FREE_MIB_MIN:
        fix = "free some space: a full disk stops every append"
        return (Finding("warn", "data folder", f"{folder}: {free} MiB free", fix),)
    return (Finding("ok", "data folder", f"{folder}, {free} MiB free"),)


async def _check_log(settings: Settings) -> tuple[Finding, ...]:
    path = settings.log_file()
    try:
        file = await open_read_only(path)
    except NotFoundError:
        return (Finding("ok", "log", f"{path} does not exist yet: the first run makes it"),)
    try:
        problem = await file.integrity()
        watermark = await file.read_watermark()
    finally:
        await file.close()
    if problem is not None:
        fix = "keep the file, restore a copy from an export"
        return (Finding("fail", "log", f"{path}: {problem}", fix),)
    return (
        Finding("ok", "log", f"{path}, views at record {watermark}"),
        _holder(path),
    )


def _holder(path: Path) -> Finding:
    holder = read_holder(path)
    if holder is None:
        return Finding("ok", "runtime", "none runs on this file")
    where = f", socket {holder.socket}" if holder.socket else ""
    return Finding("ok", "runtime", f"process {holder.pid} runs on this file{where}")


async def _check_sandbox(settings: Settings) -> tuple[Finding, ...]:
    return await make_tools(settings).check()


async def _check_models(settings: Settings) -> tuple[Finding, ...]:
    found = []
    for name, provider in (("openai", OpenAISettings()), ("anthropic", AnthropicSettings())):
        if provider.is_set:
            key = "with a key" if provider.api_key else "without a key"
            where = provider.base_url or "official API"
            found.append(Finding("ok", f"model {name}", f"{where}, {key}"))
    if settings.scripted.script is not None:
        script = settings.scripted.script
        if script.is_file():
            found.append(Finding("ok", "model scripted", str(script)))
        else:
            fix = "correct THREADLOG_SCRIPTED__SCRIPT"
            found.append(Finding("fail", "model scripted", f"{script} is no file", fix))
    if not found:
        if settings.is_cluster:
            return (Finding("ok", "model", "none here; in a cluster only planners need one"),)
        fix = (
            "set OPENAI_API_KEY or ANTHROPIC_API_KEY, or OPENAI_BASE_URL for a server of yours, "
            "or run with --script FILE"
        )
        found.append(Finding("warn", "model", "none is configured", fix))
    return tuple(found)


async def _check_keys(settings: Settings) -> tuple[Finding, ...]:
    path, clock = settings.keys_file(), SystemClock()
    records = await asyncio.to_thread(open_keys(settings, clock).records)
    active = sum(record.is_active(clock.now_ms()) for record in records)
    if active:
        return (Finding("ok", "keys", f"{path}: {active} valid"),)
    fix = "threadlog keys create --name NAME"
    level: Literal["ok", "warn"] = "warn" if settings.is_cluster else "ok"
    return (Finding(level, "keys", f"{path}: no key that is valid", fix),)


def _checks(settings: Settings) -> tuple[tuple[str, Check], ...]:
    log: tuple[tuple[str, Check], ...] = (("log", _check_log),)
    if settings.is_cluster:
        from threadlog.bootstrap.cluster_health import CHECKS

        log = CHECKS
    return (
        ("data folder", _check_folders),
        *log,
        ("sandbox", _check_sandbox),
        ("model", _check_models),
        ("keys", _check_keys),
    )
