"""LIKE against a matcher of a few lines, and hostile patterns in time linear in the text."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.model import expressions as ex
from optimizer.model.types import ColumnType
from runtime.columns.column import from_arrow
from runtime.columns.evaluate import evaluate, truth
from runtime.columns.like import LikePattern


def matches(text: str, pattern: str, escape: str | None) -> bool:
    """Which prefixes of the text the pattern read so far matches: a set of lengths."""
    ends, at = {0}, 0
    while at < len(pattern):
        c, literal = pattern[at], False
        if c == escape and at + 1 < len(pattern):
            at, literal = at + 1, True
            c = pattern[at]
        if c == "%" and not literal:
            ends = set(range(min(ends), len(text) + 1)) if ends else ends
        else:
            ends = {e + 1 for e in ends if e < len(text) and (text[e] == c or (c == "_" and not literal))}
        at += 1
    return len(text) in ends


TEXTS = st.text(st.sampled_from("ab%_!\n\\.*é\U0001f600"), max_size=12)


@given(TEXTS, TEXTS, st.sampled_from([None, "!", "\\", "%", "_", "a"]))
def test_as_the_simple_matcher(text: str, pattern: str, escape: str | None) -> None:
    assert LikePattern(pattern, escape).matches(text) == matches(text, pattern, escape)


@given(st.text("ab", max_size=30), st.text("ab%_", max_size=10))
def test_as_the_simple_matcher_where_nearly_everything_matches(text: str, pattern: str) -> None:
    assert LikePattern(pattern, None).matches(text) == matches(text, pattern, None)


def test_null_is_null_and_case_counts() -> None:
    texts = from_arrow(pa.array(["abc", None, "ABC", "a\nc"]), ColumnType.STRING)
    found = evaluate(ex.Like(ex.ColumnRef("a", "s", ColumnType.STRING), "a%c"), lambda _: texts, 4)
    assert found.to_arrow().to_pylist() == [True, None, False, True]


HOSTILE = [
    "%a%a%a%a%a%a%a%a%b",
    "%a%a%a%a%a%a%a%ab%",
    "%a_a%_a_a%a_a_b",
    "a%" * 40 + "b",
    "%" * 500 + "b",
    f"%{'a' * 60}b%",
]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_eight_times_the_text_takes_about_eight_times_as_long(pattern: str) -> None:
    """In processor time of this thread, the best of several: other work beside it does not count."""

    def seconds(length: int) -> float:
        texts = from_arrow(pa.array(["a" * length]), ColumnType.STRING)
        like = ex.Like(ex.ColumnRef("a", "s", ColumnType.STRING), pattern)
        best = float("inf")
        for _ in range(5):
            began = time.thread_time()
            assert truth(like, lambda _: texts, 1).tolist() == [False]
            best = min(best, time.thread_time() - began)
        return best

    short, long = seconds(100_000), seconds(800_000)
    assert long < 32 * max(short, 1e-3), (short, long)
