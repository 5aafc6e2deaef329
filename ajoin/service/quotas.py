"""How much callers may ask for at once: open subscriptions of all and of each tenant, calls a second of each tenant.

Calls are bounded by a token bucket per tenant that holds one second's worth: a burst may use it up, then calls are
admitted at the tenant's rate. A call that is refused costs the look at its token and nothing else; it never waits here,
so a tenant that floods the service holds no memory in it and delays nobody. Quotas for queries and streams are
checked where these are created, on the engine thread, so that they hold exactly.

A subscription counts until its stream has really ended. A client that stops reading keeps its place in the count, so
stuck ones cannot add up beyond the bound either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ajoin.platform.tenancy import check_quota
from ajoin.service.tokens import Caller
from optimizer.errors import ResourceExhausted


class TokenBucket:
    """Full at first. `left` is what may be taken at the moment `at`."""

    def __init__(self, rate: int, now: float) -> None:
        self.left, self.at = float(rate), now

    def take(self, rate: int, now: float) -> bool:
        """One of `rate` a second; the rate may change between two calls."""
        self.left = min(rate, self.left + (now - self.at) * rate)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Quotas:
    """Owned by the server's event loop. `clock` gives seconds."""

    def __init__(self, max_subscribers: int, clock: Callable[[], float]) -> None:
        self._most = max_subscribers
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}
        self._open: Counter[str] = Counter()

    def count_call(self, who: Caller) -> None:
        rate = who.quota.requests
        if rate is None:
            return
        now = self._clock()
        if not self._buckets.setdefault(who.tenant, TokenBucket(rate, now)).take(rate, now):
            raise ResourceExhausted(
                f"tenant {who.tenant!r} makes more than {rate:,} calls a second",
                reason="TENANT_RATE",
                hint="wait a moment, or ask an operator for a higher max_requests of the tenant "
                "(setting max_tenant_requests)",
            )

    @contextmanager
    def subscription(self, who: Caller) -> Iterator[None]:
        if self._open.total() >= self._most:
            raise ResourceExhausted(
                "the platform has no room for another subscriber",
                reason="TOO_MANY_SUBSCRIBERS",
                hint="end one, or ask an operator for a higher max_subscribers",
            )
        check_quota(who.tenant, "subscribers", self._open[who.tenant], who.quota.subscribers)
        self._open[who.tenant] += 1
        try:
            yield
        finally:
            self._open[who.tenant] -= 1
