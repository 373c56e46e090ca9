"""The members port: which workers are alive. Asked only about writers of foreign open claims."""

from typing import Protocol

from threadlog.ids import WorkerId


class Members(Protocol):
    """Who belongs to the group of the living."""

    @property
    def watch_ms(self) -> int:
        """How long a settler must have watched a foreign claim before it may settle it.

        Units:   milliseconds. 0 where a lock proves that every earlier process is gone.
        """
        ...

    async def is_gone(self, worker: WorkerId) -> bool:
        """True only when it is certain that the worker's process is gone. Doubt means alive."""
        ...
