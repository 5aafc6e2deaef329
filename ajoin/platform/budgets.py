"""Which budget a new query gets: what its creator asks for, within what the creator may ask for.

Caps come from the settings `max_query_...`; for a tenant from its entry in the token file, where that says something.
A query that asks for nothing gets the cap, so a cap is also the default. A query that asks for more than the cap is
refused rather than cut: who asks for a million rows should not find out later that it was given a thousand.

What a budget does when it is used up is the engine's part (runtime.control.budgets).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from optimizer.errors import InvalidRequest
from runtime.api import NO_BUDGET, AtLimit, Budget

LIMITS = {
    "rows": "rows an epoch",
    "bytes": "bytes of results an epoch",
    "retained_bytes": "bytes of results in the retention",
    "seconds": "seconds of tasks an epoch",
    "state_bytes": "bytes of state",
}
"""The names of what can be limited, and what their numbers count."""

GOALS = {"latency": "seconds of age of its rows"}
"""What a query may wish for and nobody limits."""

MOST = 1 << 62


def granted(wish: Budget, cap: Budget, tenant: str = "") -> Budget:
    """What a query that asks for `wish` gets, if all it may have is `cap`."""
    for name, what in (LIMITS | GOALS).items():
        asked, most = getattr(wish, name), getattr(cap, name)
        if asked is not None and not 0 < asked < MOST:
            raise _invalid(
                f"{asked:.6g} {what} are no budget", f"give more than 0 and less than {MOST:.2g}, or leave it out"
            )
        if asked is not None and most is not None and asked > most:
            whose = f" of tenant {tenant!r}, in the token file or as a setting" if tenant else " (a setting)"
            raise InvalidRequest(
                f"a budget of {asked:,} {what} is asked for; {most:,} are the most a query may have",
                reason="BUDGET_TOO_LARGE",
                hint=f"ask for less, or ask an operator for a higher max_query_{name}{whose}",
            )
    chosen = {name: getattr(cap if getattr(wish, name) is None else wish, name) for name in LIMITS | GOALS}
    return Budget(**chosen, at_limit=wish.at_limit)


def parsed(values: Mapping[str, Any], at_limit: Any = None) -> Budget:
    """A budget as it stands in a message or on the command line: numbers, or texts of numbers, by their names."""
    budget = NO_BUDGET
    if at_limit is not None:
        if at_limit not in list(AtLimit):
            raise _invalid(f"{at_limit!r} is not what a query can do at its limit", f"say {', '.join(AtLimit)}")
        budget = replace(budget, at_limit=AtLimit(at_limit))
    for name, value in values.items():
        if name not in LIMITS | GOALS:
            raise _invalid(f"{name!r} cannot be limited", f"what can be is: {', '.join(LIMITS | GOALS)}")
        budget = replace(budget, **{name: _number(name, value)})
    return budget


def _number(name: str, value: Any) -> Any:
    kind = float if name in ("seconds", "latency") else int
    if isinstance(value, str | int | kind) and not isinstance(value, bool):
        try:
            return kind(value)
        except (ValueError, OverflowError):
            pass
    raise _invalid(f"{name} = {value!r} is no {'number' if kind is float else 'whole number'}", "give a number")


def repeats(wish: Budget, budget: Budget) -> bool:
    """Could a query with this budget have been created with this wish?"""
    same = all(getattr(wish, name) in (None, getattr(budget, name)) for name in LIMITS | GOALS)
    return same and wish.at_limit == budget.at_limit


def _invalid(message: str, hint: str) -> InvalidRequest:
    return InvalidRequest(message, reason="BUDGET_INVALID", hint=hint)
