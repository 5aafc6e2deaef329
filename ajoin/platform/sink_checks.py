"""Are the sinks of new queries there? Asked when a query is created, before its request enters the mailbox.

A sink that cannot work is refused with its query, at once, so whoever can correct it hears of it. The question is asked
on the caller's thread: a broker that does not answer costs its caller some seconds, and no epoch waits. Nothing is
written or kept, so a refusal leaves nothing behind. A sink that goes away later is another matter: it fails alone, and
is tried again (runtime/delivery).

One call may create thousands of queries. Equal sinks are asked once, and all together may take `MOST_SECONDS`; those
that were not asked by then are refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from optimizer.errors import AJoinError, Unavailable
from runtime.connectors import registry
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.options import Root

MOST_SECONDS = 10.0


class SinkChecks:
    """For the queries of one call. `clock` gives seconds."""

    def __init__(self, allowed_roots: Sequence[Root], clock: Callable[[], float] = time.monotonic) -> None:
        self._roots = allowed_roots
        self._clock = clock
        self._until = clock() + MOST_SECONDS
        self._asked: dict[ConnectorSpec, AJoinError | None] = {}

    def check(self, specs: Iterable[ConnectorSpec], columns: Sequence[str]) -> None:
        """Raise if one of them cannot take rows with these columns."""
        for spec in specs:
            registry.check_sink(spec, allowed_roots=self._roots, columns=columns)
            if spec not in self._asked:
                self._asked[spec] = self._ask(spec)
            if (refused := self._asked[spec]) is not None:
                raise refused

    def _ask(self, spec: ConnectorSpec) -> AJoinError | None:
        if self._clock() > self._until:
            return Unavailable(
                f"the sinks of this call have not answered within {MOST_SECONDS:.0f} s",
                reason="SINKS_TOO_SLOW",
                hint="create fewer queries with sinks in one call, or look why these sinks do not answer",
            )
        try:
            registry.reach_sink(spec, allowed_roots=self._roots)
        except AJoinError as refused:
            return refused
        return None
