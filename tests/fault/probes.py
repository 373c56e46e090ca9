"""57 ways out of the sandbox (RELIABILITY f), as a program that runs inside it.

A probe returns when it got through; it raises OSError or Denied when it was stopped. Anything else
is a broken probe, which proves nothing. None does harm where it succeeds: it opens, asks or tries
on itself. Run as `python3 probes.py TCP_PORT UDP_PORT ABSTRACT_NAME CANARY [NAMES]`.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER, CLONE_NEWNET, MS_BIND, TIOCSTI = 0x10000000, 0x40000000, 4096, 0x5412
# Numbers of x86_64 and aarch64, in this order.
NUMBERS = {
    "clone": (56, 220),
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "add_key": (248, 217),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "open_by_handle_at": (304, 265),
    "process_vm_readv": (310, 270),
    "reboot": (169, 142),
    "setns": (308, 268),
}
# Where the arguments stand.
TCP_PORT, UDP_PORT, ABSTRACT_NAME, CANARY, FIRST_NAME = range(1, 6)


class Denied(Exception):
    """The attempt was stopped without an error code."""


def called(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def system_call(name: str, *arguments: object) -> None:
    number = NUMBERS[name][os.uname().machine == "aarch64"]
    longs = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    called(LIBC.syscall(number, *longs))


def write(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))


def open_for_write(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY))


def absent(*paths: str) -> None:
    if not any(os.path.lexists(path) for path in paths):
        raise Denied("not there")


def fails(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        raise Denied(done.stderr.decode(errors="replace").strip())


def fill(folder: str) -> None:
    for number in range(4):
        with Path(folder, f"fill{number}").open("wb") as file:
            for _ in range(80):
                file.write(bytes(1 << 20))


def clean(folder: str) -> None:
    try:
        fill(folder)
    finally:
        for number in range(4):
            Path(folder, f"fill{number}").unlink(missing_ok=True)


def clone_user() -> None:
    number = NUMBERS["clone"][os.uname().machine == "aarch64"]
    made = LIBC.syscall(number, CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if made == 0:
        os._exit(0)
    called(made)


def foreign_pids() -> None:
    names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids()}
    if not names - {"bwrap", "sh", "python3", "sleep"} and len(pids()) < 20:
        raise Denied(" ".join(sorted(names)))


def pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def block_devices() -> None:
    if not [path for path in Path("/dev").iterdir() if path.is_block_device()]:
        raise Denied("none")


def tcp() -> None:
    with socket.create_connection(("127.0.0.1", int(sys.argv[TCP_PORT])), timeout=2):
        pass


def udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.settimeout(2)
        probe.connect(("127.0.0.1", int(sys.argv[UDP_PORT])))
        probe.send(b"x")
        probe.recv(1)


def abstract() -> None:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(f"\0{sys.argv[ABSTRACT_NAME]}")


def of_family(family: int, kind: int = socket.SOCK_DGRAM) -> None:
    socket.socket(family, kind).close()


def ptrace() -> None:
    called(LIBC.ptrace(0, 0, None, None))


def process_vm() -> None:
    data = ctypes.create_string_buffer(8)
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(data), 8)
    system_call("process_vm_readv", os.getpid(), vector, 1, vector, 1, 0)


def reboot() -> None:
    """With the right to reboot, wrong magic numbers are EINVAL."""
    try:
        system_call("reboot", 0, 0, 0, 0)
    except OSError as error:
        if error.errno == errno.EPERM:
            raise


def perf() -> None:
    attributes = ctypes.create_string_buffer(b"\x01\0\0\0\x40\0\0\0", 64)
    system_call("perf_event_open", attributes, 0, -1, -1, 0)


def by_handle() -> None:
    handle = ctypes.create_string_buffer(b"\x08\0\0\0\x01\0\0\0", 16)
    root = os.open("/", os.O_RDONLY)
    try:
        system_call("open_by_handle_at", root, handle, os.O_RDONLY)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise


def push_input() -> None:
    _, terminal = os.openpty()
    fcntl.ioctl(terminal, TIOCSTI, b"x")


def shadow_by_symlink() -> None:
    link = Path("shadow-link")
    link.unlink(missing_ok=True)
    link.symlink_to("/etc/shadow")
    link.read_text()


def own_by_root() -> None:
    path = Path("mine")
    path.touch()
    os.chown(path, 0, 0)


def gain_uid() -> None:
    if "NoNewPrivs:\t1" in Path("/proc/self/status").read_text():
        os.setresuid(0, 0, 0)


def raise_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    except ValueError as error:
        raise Denied(str(error)) from error


def file_over_cap() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Path("large").open("wb") as file:
        file.seek(1 << 30)
        file.write(b"x")
        file.flush()


def kill_first() -> None:
    os.kill(1, signal.SIGKILL)
    os.kill(1, 0)
    raise Denied("it lives on")


def secrets() -> None:
    for pid in pids():
        with contextlib.suppress(OSError):
            if sys.argv[CANARY].encode() in Path(f"/proc/{pid}/environ").read_bytes():
                return
    raise Denied("no canary")


def extra_descriptors() -> None:
    listing = "for f in /proc/self/fd/*; do readlink $f; done; true"
    found = subprocess.run(["sh", "-c", listing], capture_output=True, check=True).stdout
    known = (b"pipe:", b"/dev/null", b"/proc/")
    if all(line.startswith(known) for line in found.splitlines()):
        raise Denied("only the standard three")


def set_clock() -> None:
    time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME))


PROBES: dict[str, Callable[[], object]] = {
    "write_root": lambda: write("/probe"),
    "write_usr": lambda: write("/usr/probe"),
    "write_etc": lambda: write("/etc/probe"),
    "write_passwd": lambda: open_for_write("/etc/passwd"),
    "write_dev": lambda: write("/dev/probe"),
    "core_pattern": lambda: open_for_write("/proc/sys/kernel/core_pattern"),
    "swappiness": lambda: open_for_write("/proc/sys/vm/swappiness"),
    "sysrq": lambda: open_for_write("/proc/sysrq-trigger"),
    "mount": lambda: called(LIBC.mount(b"/usr", b"/tmp", None, MS_BIND, None)),
    "umount": lambda: called(LIBC.umount2(b"/tmp", 0)),
    "chroot": lambda: os.chroot("/tmp"),
    "unshare_user": lambda: called(LIBC.unshare(CLONE_NEWUSER)),
    "unshare_net": lambda: called(LIBC.unshare(CLONE_NEWNET)),
    "nsenter": lambda: fails("nsenter", "-t", "1", "-m", "true"),
    "setns": lambda: system_call("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0),
    "clone_user": clone_user,
    "foreign_pids": foreign_pids,
    "host_directories": lambda: absent("/root", "/home", "/srv", "/opt", "/boot", "/mnt"),
    "var": lambda: absent("/var"),
    "cgroupfs": lambda: absent("/sys/fs/cgroup"),
    "docker_socket": lambda: absent("/var/run/docker.sock", "/run"),
    "block_devices": block_devices,
    "dev_mem": lambda: os.close(os.open("/dev/mem", os.O_RDONLY)),
    "kmsg": lambda: os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)),
    "mknod": lambda: os.mknod("/tmp/node", 0o60600, os.makedev(254, 0)),
    "tcp": tcp,
    "udp": udp,
    "dns": lambda: str(socket.getaddrinfo("example.invalid", 80)),
    "icmp": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close(),
    "vsock": lambda: of_family(40, socket.SOCK_STREAM),
    "netlink": lambda: of_family(16),
    "packet": lambda: of_family(17),
    "alg": lambda: of_family(38, socket.SOCK_SEQPACKET),
    "abstract_socket": abstract,
    "ptrace": ptrace,
    "process_vm": process_vm,
    "io_uring": lambda: system_call("io_uring_setup", 1, ctypes.create_string_buffer(120)),
    "bpf": lambda: system_call("bpf", 0, ctypes.create_string_buffer(72), 72),
    "keyctl": lambda: system_call("add_key", b"user", b"probe", b"x", 1, -2),
    "userfaultfd": lambda: system_call("userfaultfd", 1),
    "perf": perf,
    "open_by_handle": by_handle,
    "settimeofday": set_clock,
    "reboot": reboot,
    "tiocsti": push_input,
    "shadow_by_symlink": shadow_by_symlink,
    "chown": own_by_root,
    "setuid_gain": gain_uid,
    "su": lambda: fails("su", "-c", "true"),
    "nice": lambda: os.nice(-5),
    "rlimit": raise_limit,
    "tmp_over_cap": lambda: clean("/tmp"),
    "shm_over_cap": lambda: clean("/dev/shm"),
    "file_over_cap": file_over_cap,
    "kill_first": kill_first,
    "secrets": secrets,
    "extra_descriptors": extra_descriptors,
}


def verdict(probe: Callable[[], object]) -> str:
    """`OPEN` when it got through, `denied` when it was stopped, else `BROKEN` and why."""
    try:
        probe()
    except (OSError, Denied) as stopped:
        return f"denied\t{stopped}"
    except BaseException as broken:  # noqa: BLE001  # the report says it, the test fails on it
        return f"BROKEN\t{broken!r}"
    return "OPEN\t"


def main(names: list[str]) -> None:
    """Each in a process of its own, because some change what the next would meet."""
    for name in names:
        child = os.fork()
        if child == 0:
            sys.stdout.write(f"{name}\t{verdict(PROBES[name])}\n")
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[FIRST_NAME:] or [*PROBES])
