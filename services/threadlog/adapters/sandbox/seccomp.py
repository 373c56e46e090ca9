"""The system calls that no command may make, as a filter program for bubblewrap.

A deny-list (an allow-list is the stronger follow-up). Namespaces and the dropped uid already
refuse most of these; the filter also holds where the kernel has a hole in one of them, and it alone
covers what no namespace does: AF_VSOCK, io_uring, TIOCSTI. A call of a foreign architecture (i386,
x32) kills the process. Source: RELIABILITY (f) Seccomp.
"""

import errno
import tempfile
from functools import cache
from typing import Any

from threadlog.errors import RefusedError

_REFUSED = (
    *("mount", "umount2", "pivot_root", "fsopen", "fsconfig", "fsmount", "fspick", "move_mount"),
    *("open_tree", "mount_setattr", "chroot", "unshare", "setns", "bpf", "perf_event_open"),
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "userfaultfd"),
    *("add_key", "request_key", "keyctl", "open_by_handle_at", "name_to_handle_at", "quotactl"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
    *("reboot", "swapon", "swapoff", "acct", "syslog"),
    *("clock_settime", "clock_adjtime", "settimeofday", "adjtimex"),
)
# ENOSYS, not EPERM: programs then take the older call.
_ABSENT = ("io_uring_setup", "io_uring_enter", "io_uring_register", "clone3")
_CLONE_NEWUSER = 0x10000000
_LOW_32_BITS = 0xFFFFFFFF
# Sockets only of AF_UNIX 1, AF_INET 2, AF_INET6 10: no NETLINK, PACKET, ALG, VSOCK, or a later one.
_FAMILIES_BELOW = [0, 3, 4, 5, 6, 7, 8, 9]
_FAMILY_LAST = 10
# TIOCSTI, TIOCLINUX
_REQUESTS = [0x5412, 0x541C]


@cache
def program() -> bytes:
    """The filter, compiled for this machine.

    Raises:  RefusedError: libseccomp is missing or too old; without a filter nothing runs.
    """
    try:
        import pyseccomp  # loads libseccomp, which a runner without a sandbox need not have

        return _compiled(pyseccomp)
    except (ImportError, RuntimeError, OSError, ValueError) as error:
        raise RefusedError(
            f"no seccomp filter can be made ({error}); install libseccomp2 (>= 2.5) and pyseccomp"
        ) from error


def _compiled(library: Any) -> bytes:
    rules = library.SyscallFilter(library.ALLOW)
    refused, absent = library.ERRNO(errno.EPERM), library.ERRNO(errno.ENOSYS)

    def masked(index: int, mask: int, value: int) -> Any:
        return library.Arg(index, library.MASKED_EQ, mask, value)

    for name in _REFUSED:
        rules.add_rule(refused, name)
    for name in _ABSENT:
        rules.add_rule(absent, name)
    rules.add_rule(refused, "clone", masked(0, _CLONE_NEWUSER, _CLONE_NEWUSER))
    for request in _REQUESTS:
        rules.add_rule(refused, "ioctl", masked(1, _LOW_32_BITS, request))
    # The kernel looks at 32 bits, this comparison at 64: what differs above them is refused.
    rules.add_rule(refused, "socket", library.Arg(0, library.GT, _FAMILY_LAST))
    for family in _FAMILIES_BELOW:
        rules.add_rule(refused, "socket", library.Arg(0, library.EQ, family))
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()
