"""Every error of the Redis client lands in one family of ours, by its class.

Only where Redis tells two families by one class does the code word of its reply decide.
"""

import asyncio

from redis import exceptions

from threadlog.errors import CorruptError, RefusedError, ThreadlogError, TransientError

SETTING = "THREADLOG_REDIS__URL"
FOREIGN: tuple[type[Exception], ...] = (
    exceptions.RedisError,
    exceptions.RedisClusterException,
    exceptions.ChildDeadlockedError,
    exceptions.IncorrectPolicyType,
    OSError,
    asyncio.TimeoutError,
)
"""Everything that the client raises for a reason outside this program."""

_REFUSED = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.AuthenticationWrongNumberOfArgsError,
    exceptions.ExternalAuthProviderError,
    exceptions.NoPermissionError,
)
# Redis lives, or will again: out of memory, starting, failing over, moving keys.
_TRANSIENT = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.ClusterError,
    exceptions.RedisClusterException,
    exceptions.AskError,
    exceptions.TryAgainError,
    exceptions.WatchError,
    exceptions.LockError,
    exceptions.PubSubError,
    exceptions.NoScriptError,
    exceptions.ChildDeadlockedError,
    exceptions.IncorrectPolicyType,
    OSError,
    asyncio.TimeoutError,
)
# Replies without a class of their own. Redis 6.2 wraps those of a script, so they may stand inside.
_TRANSIENT_WORDS = ("OOM ", "BUSY ", "LOADING ", "MISCONF ", "NOREPLICAS ", "UNKILLABLE ")


def mapped(error: Exception, address: str) -> ThreadlogError:
    """The error of ours that says the same; `address` is without a password."""
    where = f"Redis at {address} ({SETTING})"
    if isinstance(error, _REFUSED):
        return RefusedError(f"{where} does not let us in: {error}; check user and password")
    if isinstance(error, exceptions.OutOfMemoryError):
        return TransientError(f"{where} is out of memory; raise maxmemory: {error}")
    if isinstance(error, _TRANSIENT):
        return TransientError(f"{where} cannot be used now: {error}")
    if any(word in str(error) for word in _TRANSIENT_WORDS):
        return TransientError(f"{where} takes nothing now: {error}")
    return CorruptError(f"{where} answered what it never should: {error}")
