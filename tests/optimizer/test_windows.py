"""Window values against their definitions, written as loops over all windows near by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.model.windows import PeriodicWindow
from optimizer.model.windows.base import duration

times = st.integers(-200, 200)
windows = st.builds(PeriodicWindow, st.integers(1, 40), st.integers(1, 40))


def starts(window: PeriodicWindow) -> list[int]:
    return [k * window.advance_ms for k in range(-500, 500)]


@given(windows, times)
def test_a_query_begins_with_the_first_start_that_is_not_before_it(window: PeriodicWindow, time: int) -> None:
    assert window.first_start_at_or_after(time) == min(s for s in starts(window) if s >= time)


@given(windows, times)
def test_the_first_window_alive_is_the_first_that_ends_after_the_horizon(window: PeriodicWindow, horizon: int) -> None:
    alive = window.first_alive(horizon)
    assert alive == min(s for s in starts(window) if window.end(s) > horizon)
    assert not window.closed(alive, horizon) and window.closed(alive - window.advance_ms, horizon)


@pytest.mark.parametrize(
    ("ms", "says"),
    [(1, "1 MILLISECOND"), (1500, "1500 MILLISECONDS"), (1000, "1 SECOND"), (90_000, "90 SECONDS"),
     (7_200_000, "2 HOURS"), (86_400_000, "1 DAY")],
)  # fmt: skip
def test_durations_use_the_largest_unit_that_divides(ms: int, says: str) -> None:
    assert duration(ms) == says


def test_sql() -> None:
    assert PeriodicWindow(1000, 1000).sql == "TUMBLING (SIZE 1 SECOND)"
    assert PeriodicWindow(60_000, 500).sql == "HOPPING (SIZE 1 MINUTE, ADVANCE BY 500 MILLISECONDS)"
