"""The pipes of one command: what it prints is always taken, what it is told never blocks the loop.

Output is kept up to a bound and counted beyond it, so that no command ever waits for its reader.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import struct
import termios

_CHUNK_BYTES = 256 * 1024
_PIPE_BYTES = 1024 * 1024
# When the command has ended, a process that left it may still hold the pipe: take what is in it.
_REST_BYTES = 2 * _PIPE_BYTES


class Output:
    """What comes out of a descriptor. `is_ended`: every writer has closed it."""

    def __init__(self, bytes_max: int) -> None:
        self.data = bytearray()
        self.total = 0
        self.is_ended = False
        self._bytes_max = bytes_max
        self._descriptor, self.writer = os.pipe2(os.O_CLOEXEC)
        _widen(self._descriptor)
        os.set_blocking(self._descriptor, False)

    def start(self) -> None:
        """Take from now on. The caller closes `writer` once the child has it."""
        asyncio.get_running_loop().add_reader(self._descriptor, self._take)

    def close(self) -> None:
        """Take what is in the pipe now, and no more."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        limit = self.total + _REST_BYTES
        while not self.is_ended and self.total < limit and self._take():
            pass
        os.close(self._descriptor)

    def _take(self) -> int:
        try:
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return 0
        if not chunk:
            self.is_ended = True
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self.data += chunk[: max(self._bytes_max - len(self.data), 0)]
        self.total += len(chunk)
        self.on_data()
        return len(chunk)

    def on_data(self) -> None:
        """Called after each piece; for those who wait for a certain one."""


class Status(Output):
    """What bubblewrap says of itself, one JSON object a line: the child's pid, later its exit.

    bubblewrap gets an end that also reads, so that the pipe has a reader when the runner is gone:
    a SIGPIPE here would end it alone, and its child would wait for it for ever.
    """

    _BYTES_MAX = 64 * 1024

    def __init__(self) -> None:
        super().__init__(self._BYTES_MAX)
        writer = self.writer
        self.writer = os.open(f"/proc/self/fd/{writer}", os.O_RDWR | os.O_CLOEXEC)
        os.close(writer)
        self.child: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def on_data(self) -> None:
        pid = self.value("child-pid")
        if pid is not None and not self.child.done():
            self.child.set_result(pid)

    def value(self, key: str) -> int | None:
        """The number that was said under `key`, if it was said."""
        for line in bytes(self.data).splitlines(keepends=True):
            if line.endswith(b"\n") and isinstance(found := json.loads(line).get(key), int):
                return found
        return None


class Feed:
    """Standard input: given only when `open` is called, and it is known whether it was taken.

    Without it the command has not started: what stands behind the pipe waits for it.
    """

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._writer, False)
        self._left = memoryview(b"")
        self._is_open = False

    def open(self, data: bytes) -> None:
        """Write all of `data` as it is taken, then end the input."""
        self._left, self._is_open = memoryview(data), True
        self._write()

    def is_taken(self) -> bool:
        """Whether the other side has taken all of it."""
        waiting = bytearray(4)
        fcntl.ioctl(self.reader, termios.FIONREAD, waiting)
        return self._is_open and not self._left and struct.unpack("i", waiting) == (0,)

    def close(self) -> None:
        """End the input, whether taken or not."""
        self._end()
        os.close(self.reader)

    def _write(self) -> None:
        try:
            while self._left:
                self._left = self._left[os.write(self._writer, self._left) :]
        except BlockingIOError:
            asyncio.get_running_loop().add_writer(self._writer, self._write)
            return
        self._end()

    def _end(self) -> None:
        if self._writer >= 0:
            asyncio.get_running_loop().remove_writer(self._writer)
            os.close(self._writer)
            self._writer = -1


def _widen(pipe: int) -> None:
    with contextlib.suppress(OSError):  # a user may have too many wide pipes already
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def sealed(name: str, data: bytes) -> int:
    """A descriptor from which `data` is read once; every uid may open it again."""
    descriptor = os.memfd_create(name)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.fchmod(descriptor, 0o444)
    return descriptor
