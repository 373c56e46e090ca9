"""Whether commands can be run here, and whether what should be denied is denied.

A finding that is not `ok` says what to do. The probes run in the sandbox itself; the whole list
lives with the tests.
"""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from threadlog.adapters.sandbox import program, recipe, seccomp
from threadlog.adapters.sandbox.folders import Folders, Place
from threadlog.adapters.sandbox.supervise import Ending
from threadlog.errors import RefusedError
from threadlog.ids import CallId
from threadlog.ports.tools import Finding, ToolCall

CALL = ToolCall(CallId("self-test"), 1, "", "self-test", timeout_ms=20_000)
Probe = Callable[[Place, bytes], Awaitable[Ending]]
_PACKAGES = {"bwrap": "bubblewrap", "prlimit": "util-linux", "setpriv": "util-linux"}
_BARE = "or set THREADLOG_SANDBOX=off to run commands without a sandbox"
_NAMESPACES = (
    "use bubblewrap 0.8 or newer; allow unprivileged user namespaces (sysctl "
    "user.max_user_namespaces, kernel.unprivileged_userns_clone, "
    "kernel.apparmor_restrict_unprivileged_userns; in a "
    f"container its seccomp and AppArmor profiles), {_BARE}"
)


async def of_sandbox(folders: Folders, search_path: str, probe: Probe) -> tuple[Finding, ...]:
    """Every check of the sandbox; the probes run only when all they need is there."""
    findings = [*_programs(("bwrap", "prlimit", "setpriv"), search_path), _filter(), _python()]
    if any(finding.level == "fail" for finding in findings):
        return tuple(findings)
    try:
        place = folders.scratch()
    except RefusedError as error:
        return (*findings, Finding("fail", "workspaces", str(error), "choose another data folder"))
    findings.append(_user(place))
    try:
        ending = await probe(place, program.probes())
    except RefusedError as error:
        return (*findings, Finding("fail", "start", str(error), _NAMESPACES))
    return (*findings, *_probed(ending))


def of_bare(search_path: str) -> tuple[Finding, ...]:
    """The loud warning, and the programs that are needed all the same."""
    warning = Finding(
        "warn",
        "sandbox",
        "OFF: every command of the model runs UNSANDBOXED, with all rights of this process",
        "unset THREADLOG_SANDBOX unless this machine is a sandbox itself",
    )
    return (warning, *_programs(("prlimit", "setpriv"), search_path))


def _programs(names: tuple[str, ...], search_path: str) -> list[Finding]:
    findings = []
    for name in names:
        found = shutil.which(name, path=search_path)
        if found:
            findings.append(Finding("ok", name, found))
        else:
            fix = f"install the package {_PACKAGES[name]}, {_BARE}"
            findings.append(Finding("fail", name, f"not found in {search_path}", fix))
    return findings


def _filter() -> Finding:
    try:
        return Finding("ok", "seccomp", f"{len(seccomp.program()) // 8} instructions")
    except RefusedError as error:
        return Finding("fail", "seccomp", str(error), f"install libseccomp2, {_BARE}")


def _python() -> Finding:
    path = Path(recipe.PYTHON)
    if path.exists() and path.resolve().is_relative_to("/usr"):
        return Finding("ok", "python", f"{path.resolve()}")
    fix = f"install a Python (package python3) as {path}: read, write and edit need it"
    return Finding("fail", "python", f"no {path} below /usr, the only programs in the sandbox", fix)


def _user(place: Place) -> Finding:
    identity = place.identity
    if identity.is_dropped:
        return Finding("ok", "user", f"a uid for each workspace, here {identity.uid}")
    return Finding("ok", "user", f"commands run as uid {identity.uid}, the runner's own")


def _probed(ending: Ending) -> tuple[Finding, ...]:
    *reached, last = ending.output.decode(errors="replace").splitlines() or [""]
    if last != "done" or ending.code != 0:
        said = ending.output.decode(errors="replace")[-500:]
        return (Finding("fail", "probes", f"the probes did not run: {said}", _BARE),)
    fix = "the sandbox is not tight: do not run foreign commands here, and report this"
    fails = [Finding("fail", f"probe {line.replace(chr(9), ': ')}", line, fix) for line in reached]
    return tuple(fails) or (Finding("ok", "probes", "all denied"),)
