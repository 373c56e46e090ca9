"""Tries to leave the sandbox and prints what was not denied: the runner's short self-test.

A probe raises an OSError when it was denied, and returns what it reached otherwise. No probe that
succeeds changes anything, beyond an empty file. Runs under any Python >= 3.8.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import sys

_FEW_PROCESSES = 16
_KNOWN_VARIABLES = {
    "PATH",
    "LANG",
    "TERM",
    "TMPDIR",
    "HOME",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "LC_CTYPE",
}
_HOST_FOLDERS = ("/root", "/home", "/var", "/srv", "/opt", "/run", "/sys", "/etc/shadow", "/boot")
_AF_VSOCK, _AF_ALG, _AF_NETLINK, _AF_PACKET = 40, 38, 16, 17
_CLONE_NEWUSER, _CLONE_NEWNET, _MS_BIND, _PTRACE_TRACEME = 0x10000000, 0x40000000, 4096, 0
_TEST_NET = ("192.0.2.1", 9)
_libc = ctypes.CDLL(None, use_errno=True)


def _denied(why: str = "denied") -> OSError:
    return OSError(errno.EPERM, why)


def _called(result: int) -> str:
    if result < 0:
        raise OSError(ctypes.get_errno(), "denied")
    return "the call succeeded"


def _write(path: str) -> str:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    return f"{path} can be written"


def _open_socket(family: int) -> str:
    socket.socket(family, socket.SOCK_RAW if family == _AF_PACKET else socket.SOCK_DGRAM).close()
    return f"a socket of family {family} was made"


def _route() -> str:
    """Connecting a datagram socket looks the route up and sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(_TEST_NET)
    return "there is a route to a network"


def _host_files() -> str:
    seen = [path for path in _HOST_FOLDERS if os.path.lexists(path)]
    if not seen:
        raise _denied("no folder of the host is there")
    return f"the host's {', '.join(seen)}"


def _processes() -> str:
    pids = [entry.name for entry in os.scandir("/proc") if entry.name.isdigit()]
    if len(pids) <= _FEW_PROCESSES:
        raise _denied("only processes of the sandbox")
    return f"{len(pids)} processes are visible"


def _secrets() -> str:
    names = {name for name in os.environ if not name.startswith("THREADLOG_")} - _KNOWN_VARIABLES
    if not names:
        raise _denied("the environment is constant")
    return f"variables {', '.join(sorted(names))}"


def _become_root() -> str:
    os.setuid(0)
    return "uid 0 was taken"


PROBES = {
    "write_usr": lambda: _write("/usr/threadlog-probe"),
    "write_root": lambda: _write("/threadlog-probe"),
    "core_pattern": lambda: _write("/proc/sys/kernel/core_pattern"),
    "mount": lambda: _called(_libc.mount(b"/usr", b"/tmp", None, _MS_BIND, None)),
    "unshare_user": lambda: _called(_libc.unshare(_CLONE_NEWUSER)),
    "unshare_net": lambda: _called(_libc.unshare(_CLONE_NEWNET)),
    "ptrace": lambda: _called(_libc.ptrace(_PTRACE_TRACEME, 0, None, None)),
    "netlink": lambda: _open_socket(_AF_NETLINK),
    "packet": lambda: _open_socket(_AF_PACKET),
    "vsock": lambda: _open_socket(_AF_VSOCK),
    "alg": lambda: _open_socket(_AF_ALG),
    "network": _route,
    "host_files": _host_files,
    "host_processes": _processes,
    "environment": _secrets,
    "setuid": _become_root,
}


def main() -> int:
    """Run every probe and print `NAME TAB what was reached`, one line for each that succeeded."""
    sys.stdin.buffer.read()
    for name, probe in PROBES.items():
        try:
            reached = probe()
        except OSError:
            continue
        print(f"{name}\t{reached}")
    print("done")
    return 0
