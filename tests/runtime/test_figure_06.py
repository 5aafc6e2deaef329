"""Figure 6 of the AJoin paper: what sharing costs when two queries have no tuple in common.

    Q4.V  t1 t2 t3      Q4.W  t4 t5 t6         query set 10
    Q5.V  t7 t8 t9      Q5.W  t10 t11 t12      query set 01

All twelve tuples have the same key. In one group the join looks at 6 x 6 = 36 combinations, in two groups at
3 x 3 + 3 x 3 = 18; the rows are the same 18.
"""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api import ForceGroups
from runtime.kernels import csr, hashing
from runtime.kernels.expand import count_pairs, pairs
from runtime.kernels.intersect import intersect
from tests.runtime.kernel_support import everything
from tests.runtime.rig import Rig

Q4, Q5 = 0b10, 0b01
V = {"t1": Q4, "t2": Q4, "t3": Q4, "t7": Q5, "t8": Q5, "t9": Q5}
W = {"t4": Q4, "t5": Q4, "t6": Q4, "t10": Q5, "t11": Q5, "t12": Q5}


def indexed(tuples):
    """(index, query sets) of tuples that all have key 7 and lie in one slice."""
    sets = np.array(list(tuples.values()), np.uint64).reshape(-1, 1)
    hashes = hashing.hash_integers(np.full(len(tuples), 7, np.int64))
    slices = np.zeros(len(tuples), np.int64)
    return csr.build(np.arange(len(tuples)), hashes, slices, slices, sets), sets


def join(left, right):
    """(combinations looked at, pairs of names that some query wants)."""
    (l_index, l_sets), (r_index, r_sets) = indexed(left), indexed(right)
    l, r, sets = intersect(*everything(l_index, r_index))
    looked_at = int(count_pairs(l, l_index.offsets, 0, len(left), r, r_index.offsets).sum())
    l_items = csr.Items(l_index.order, l_index.offsets, l_sets)
    r_items = csr.Items(r_index.order, r_index.offsets, r_sets)
    _, li, ri, _, _ = pairs(l, l_items, 0, len(left), r, r_items, sets, looked_at)
    return looked_at, {(list(left)[a], list(right)[b]) for a, b in zip(li, ri, strict=True)}


def only(tuples, query):
    return {name: sets for name, sets in tuples.items() if sets & query}


def test_the_shared_join_looks_at_36_combinations_and_separate_joins_at_18():
    shared, found = join(V, W)
    apart = [join(only(V, q), only(W, q)) for q in (Q4, Q5)]
    assert shared == 36
    assert [looked_at for looked_at, _ in apart] == [9, 9]
    assert found == apart[0][1] | apart[1][1]
    assert len(found) == 18


def test_entries_whose_query_sets_do_not_meet_are_never_looked_into():
    assert join(only(V, Q4), only(W, Q5)) == (0, set())


@pytest.mark.parametrize("groups", [{"q4": 0, "q5": 0}, {"q4": 0, "q5": 1}])
def test_the_platform_delivers_the_same_rows_with_one_group_and_with_two(tmp_path, groups):
    rig = Rig(tmp_path, partitions=1)
    for name in "VW":
        rig.stream(name, k="BIGINT", geo="STRING", n="INT")
    for id, geo in (("q4", "US"), ("q5", "EU")):
        rig.create(
            id,
            f"""SELECT V.n AS v, W.n AS w FROM V JOIN W ON V.k = W.k
                WHERE V.geo = '{geo}' AND W.geo = '{geo}' WINDOW TUMBLING (SIZE 1 SECOND)""",
        )
    rig.control(ForceGroups(tuple(groups.items())))
    geo = {Q4: "US", Q5: "EU"}
    rig.epoch({
        "V": [(7, geo[q], int(t[1:]), 5) for t, q in V.items()],
        "W": [(7, geo[q], int(t[1:]), 6) for t, q in W.items()],
    })  # fmt: skip
    assert [row[2:] for row in rig.rows("q4")] == [(v, w) for v in (1, 2, 3) for w in (4, 5, 6)]
    assert [row[2:] for row in rig.rows("q5")] == [(v, w) for v in (7, 8, 9) for w in (10, 11, 12)]
    # two groups keep query sets and indexes of their own, but share the tuples
    (bucket,) = rig.sources("V")
    sizes = [len(rig.view(bucket, group).rows) for group in sorted(set(groups.values()))]
    assert sizes == ([6] if len(set(groups.values())) == 1 else [3, 3])
    assert bucket.rows == 6
