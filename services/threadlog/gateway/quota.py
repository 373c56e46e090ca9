"""How many requests a tenant may make, in this process.

Each process counts for itself, in memory: behind a balancer a tenant has the sum of all of them. It
fails open, since there is nothing that could fail.
"""

import math

from limits import RateLimitItemPerSecond
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import FixedWindowRateLimiter

from threadlog.clock import Clock
from threadlog.errors import QuotaError
from threadlog.ids import TenantId

_WINDOW_S = 60


class Requests:
    """Counts requests in windows of a minute."""

    def __init__(self, requests_max: int, clock: Clock) -> None:
        self._item = RateLimitItemPerSecond(requests_max, _WINDOW_S)
        self._limiter = FixedWindowRateLimiter(MemoryStorage())
        self._clock = clock

    async def take(self, tenant: TenantId, told: dict[str, str]) -> None:
        """The request counts.

        Effects: `told` has the fields that say how many are left, in either case.
        Raises:  QuotaError: none is left in this window.
        """
        is_within = await self._limiter.hit(self._item, tenant)
        window = await self._limiter.get_window_stats(self._item, tenant)
        # The window begins with its first request; rounding must not make it longer than it is.
        left_s = math.ceil(window.reset_time - self._clock.now_ms() / 1_000)
        left_s = min(max(left_s, 0), _WINDOW_S)
        told["RateLimit-Policy"] = f'"requests";q={self._item.amount};w={_WINDOW_S}'
        told["RateLimit"] = f'"requests";r={window.remaining};t={left_s}'
        if not is_within:
            raise QuotaError(
                f"{self._item.amount} requests of this tenant in {_WINDOW_S} s: wait",
                limit="requests",
                retry_after_s=max(1, left_s),
            )
