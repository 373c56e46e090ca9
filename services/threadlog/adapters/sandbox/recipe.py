"""How a command is wrapped: limits, the dropped uid, bubblewrap with its seccomp filter, the gate.

Pure: arguments in, an argument vector out. The order of the programs is the recipe of RELIABILITY
(f); what differs is that the number of processes is limited inside, where only the sandbox counts.

The gate is the first thing that runs inside. It waits for one line on its standard input and does
nothing without it, so that a command starts only once its run record is on disk.
"""

import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from threadlog import limits

WORKSPACE = "/workspace"
PYTHON = "/usr/bin/python3"
_GATE = 'read -r go && exec "$@" </dev/null'
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "TMPDIR": "/tmp",
}
_LIMITS = {
    "as": (resource.RLIMIT_AS, limits.SANDBOX_ADDRESS_BYTES_MAX),
    "fsize": (resource.RLIMIT_FSIZE, limits.SANDBOX_FILE_BYTES_MAX),
    "nofile": (resource.RLIMIT_NOFILE, limits.SANDBOX_FILES_OPEN_MAX),
    "cpu": (resource.RLIMIT_CPU, limits.SANDBOX_CPU_S_MAX),
    "core": (resource.RLIMIT_CORE, 0),
    "memlock": (resource.RLIMIT_MEMLOCK, limits.SANDBOX_MEMLOCK_BYTES_MAX),
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a command runs as. `is_dropped`: the runner is root and must become this uid first."""

    uid: int
    gid: int
    is_dropped: bool


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Open files that bubblewrap reads or writes, by number."""

    seccomp: int
    status: int
    passwd: int
    group: int


def shell(line: str) -> tuple[str, ...]:
    """The gate, then the line; `--` because a line may begin with a hyphen."""
    return ("sh", "-c", _GATE, "sh", "sh", "-c", "--", line)


def python(interpreter: str, program: int) -> tuple[str, ...]:
    """A program behind a descriptor; its gate is the request that it reads from standard input."""
    return (interpreter, "-I", "-S", "-B", f"/proc/self/fd/{program}")


def environment(home: str, more: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a command: constant, and what identifies the call."""
    return {**_ENVIRONMENT, "HOME": home, **more}


def passwd(identity: Identity) -> bytes:
    """A stub of /etc/passwd with the one user there is."""
    user = f"sandbox:x:{identity.uid}:{identity.gid}:sandbox:{WORKSPACE}:/bin/sh\n"
    return user.encode()


def group(identity: Identity) -> bytes:
    """A stub of /etc/group."""
    return f"sandbox:x:{identity.gid}:\n".encode()


def sandboxed(
    inner: Sequence[str],
    *,
    folder: str,
    identity: Identity,
    variables: Mapping[str, str],
    descriptors: Descriptors,
) -> tuple[str, ...]:
    """The whole argument vector around `inner`."""
    processes = f"--nproc={_capped(resource.RLIMIT_NPROC, limits.SANDBOX_PROCESSES_MAX)}"
    return (
        *_limited(),
        *(_dropped(identity) if identity.is_dropped else ()),
        *_bubblewrap(folder, descriptors),
        *(word for key, value in variables.items() for word in ("--setenv", key, value)),
        "--",
        *("prlimit", processes, "--"),
        *inner,
    )


def bare(inner: Sequence[str]) -> tuple[str, ...]:
    """Without a sandbox: no core file, and the command's parent takes it along when it dies."""
    return ("prlimit", "--core=0", "--", "setpriv", "--pdeathsig", "KILL", "--", *inner)


def _limited() -> tuple[str, ...]:
    flags = [f"--{name}={_capped(kind, value)}" for name, (kind, value) in _LIMITS.items()]
    return ("prlimit", *flags, "--")


def _capped(kind: int, value: int) -> int:
    """Our limit, or the runner's own hard limit where that is lower: it cannot be raised."""
    _, hard = resource.getrlimit(kind)
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def _dropped(identity: Identity) -> tuple[str, ...]:
    return (
        *("setpriv", "--reuid", str(identity.uid), "--regid", str(identity.gid), "--clear-groups"),
        *("--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"),
    )


def _bubblewrap(folder: str, descriptors: Descriptors) -> tuple[str, ...]:
    return (
        *("bwrap", "--unshare-all", "--unshare-user", "--disable-userns"),
        *("--die-with-parent", "--new-session"),
        *("--ro-bind", "/usr", "/usr"),
        *("--symlink", "usr/bin", "/bin", "--symlink", "usr/sbin", "/sbin"),
        *("--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
        *("--ro-bind-try", "/etc/alternatives", "/etc/alternatives"),
        *("--ro-bind-try", "/etc/ssl/certs", "/etc/ssl/certs"),
        *("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"),
        *("--perms", "0444", "--file", str(descriptors.passwd), "/etc/passwd"),
        *("--perms", "0444", "--file", str(descriptors.group), "/etc/group"),
        *("--proc", "/proc", "--dev", "/dev"),
        *("--size", str(limits.SANDBOX_SHM_BYTES_MAX), "--tmpfs", "/dev/shm"),
        *("--size", str(limits.SANDBOX_TMP_BYTES_MAX), "--tmpfs", "/tmp"),
        *("--bind", folder, WORKSPACE, "--chdir", WORKSPACE),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--hostname", "sandbox"),
        "--clearenv",
        *("--seccomp", str(descriptors.seccomp), "--json-status-fd", str(descriptors.status)),
    )
