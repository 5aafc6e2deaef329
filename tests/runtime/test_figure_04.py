"""Figure 4 of the AJoin paper: from tuples to buckets, joining by index, re-indexing without materializing.

    V (vID)     W (usrID, vID)     C (usrID)     R (usrID)
    1           1, 1               1             1
    1           8, 4               8             8
    4           3, 1               8             5
    5           3, 4
                7, 9

V and W have the videos 1 and 4 in common; the users 1 and 8 comment, user 3 watches and does not. All tuples have
passed their selections and lie in one window.

    Q1 = V ⋈ W       Q2 = (V ⋈ W) ⋈ C, by vID and then by usrID       Q3 = (W ⋈ C) ⋈ R, all by usrID
"""

from __future__ import annotations

import pytest

from optimizer.model.plan import Leaf
from runtime.api import ForceOrder
from runtime.buckets.store import BucketStore
from runtime.execution.executor import LocalExecutor
from runtime.kernels.expand import count_pairs
from runtime.kernels.intersect import intersect
from runtime.operators import joined_output
from tests.runtime.kernel_support import everything
from tests.runtime.rig import Rig, entries

WINDOW = "WINDOW TUMBLING (SIZE 1 SECOND)"
V, W, C, R = [1, 1, 4, 5], [(1, 1), (8, 4), (3, 1), (3, 4), (7, 9)], [1, 8, 8], [1, 8, 5]


def of_video(*numbers):
    """Tuples of V are told apart by their length column: the position in the list above."""
    return [{"vID": V[n], "n": n} for n in numbers]


@pytest.fixture
def rig(tmp_path):
    return figure(tmp_path)


def figure(directory, executor=None):
    rig = Rig(directory, executor, partitions=1)
    rig.stream("V", vID="BIGINT", n="INT")
    rig.stream("W", usrID="BIGINT", vID="BIGINT")
    rig.stream("C", usrID="BIGINT", n="INT")
    rig.stream("R", usrID="BIGINT")
    return rig


def ask(rig, *queries):
    texts = {
        "q1": f"SELECT V.n, W.usrID FROM V JOIN W ON V.vID = W.vID {WINDOW}",
        "q2": f"""SELECT V.n AS video, W.usrID, W.vID, C.n AS comment FROM V JOIN W ON V.vID = W.vID
                  JOIN C ON W.usrID = C.usrID {WINDOW}""",
        "q3": f"""SELECT W.usrID, W.vID, C.n FROM W JOIN C ON W.usrID = C.usrID
                  JOIN R ON C.usrID = R.usrID {WINDOW}""",
        "q3 and the videos": f"""SELECT W.usrID, W.vID, C.n, V.n AS video FROM W JOIN C ON W.usrID = C.usrID
                  JOIN R ON C.usrID = R.usrID JOIN V ON W.vID = V.vID {WINDOW}""",
    }
    orders = {"q2": (("V", "W"), "C"), "q3": (("W", "C"), "R"), "q3 and the videos": ((("W", "C"), "R"), "V")}
    for id in queries:
        rig.create(id, texts[id])
        if id in orders:
            rig.control(ForceOrder(id, orders[id]))
    rig.epoch({
        "V": [(v, n, 100) for n, v in enumerate(V)],
        "W": [(u, v, 200) for u, v in W],
        "C": [(u, n, 300) for n, u in enumerate(C)],
        "R": [(u, 400) for u in R],
    })  # fmt: skip


def test_figure_4a_a_bucket_has_one_index_per_attribute_that_some_join_needs(rig):
    ask(rig, "q1", "q2", "q3")
    (v,), (w,), (c,), (r,) = (rig.sources(s) for s in "VWCR")
    # Q1 and Q2 join W by video, Q3 joins it by user: one copy of the tuples, two indexes
    assert {tuple(n for n, _ in key) for key in v.views[0].keys} == {("vID",)}
    assert {tuple(n for n, _ in key) for key in w.views[0].keys} == {("vID",), ("usrID",)}
    assert {tuple(n for n, _ in key) for key in c.views[0].keys} == {("usrID",)}
    assert {tuple(n for n, _ in key) for key in r.views[0].keys} == {("usrID",)}

    assert rig.index(v, "vID") == {1: of_video(0, 1), 4: of_video(2), 5: of_video(3)}
    by_video = {key: [t["usrID"] for t in under] for key, under in rig.index(w, "vID").items()}
    assert by_video == {1: [1, 3], 4: [8, 3], 9: [7]}
    by_user = {key: [t["vID"] for t in under] for key, under in rig.index(w, "usrID").items()}
    assert by_user == {1: [1], 8: [4], 3: [1, 4], 7: [9]}


def test_figure_4b_the_join_intersects_index_entries_and_keeps_the_tuples_apart(rig):
    ask(rig, "q1")
    (v,), (w,) = rig.sources("V"), rig.sources("W")
    left, right = rig.view(v), rig.view(w)
    by_video = left.index(v.views[0].keys[0]), right.index(w.views[0].keys[0])
    l, r, _ = intersect(*everything(*by_video))
    found = {
        rig.tuples(v)[left.rows[entries(by_video[0])[a][0]]]["vID"]: (
            len(entries(by_video[0])[a]),
            len(entries(by_video[1])[b]),
        )
        for a, b in zip(l, r, strict=True)
    }
    # two index entries meet; 2 + 1 tuples of V and 2 + 2 of W stay, and no pair has been formed
    assert found == {1: (2, 2), 4: (1, 2)}
    # only the sink forms the product
    assert [row[2:] for row in rig.rows("q1")] == [(0, 1), (0, 3), (1, 1), (1, 3), (2, 3), (2, 8)]


def test_figure_4c_reindexing_by_user_walks_the_rows_of_w_and_keeps_each_ones_videos_as_a_group(rig):
    ask(rig, "q2")
    (v,), (w,), (bucket,) = rig.sources("V"), rig.sources("W"), rig.joined("V", "W")
    joined, watched, videos = rig.open_joined(bucket), rig.tuples(w), rig.tuples(v)
    of_v = rig.view(v).index(v.views[0].keys[0]).order
    w_rows, v_rows = rig.view(w).rows, rig.view(v).rows

    # one item per row of W that has a video: 4 items, although V ⋈ W has 6 rows
    assert bucket.exposed == (Leaf("W"),)
    assert bucket.items == 4
    groups = {}
    for items in entries(joined.index()):
        for item in items:
            t = watched[w_rows[joined.carrier_item[item]]]
            partners = of_v[joined.partner_from[item] : joined.partner_to[item]]
            group = sorted(videos[v_rows[p]]["n"] for p in partners)
            groups.setdefault(t["usrID"], []).append((t["vID"], group))
    assert {user: sorted(seen) for user, seen in groups.items()} == {
        1: [(1, [0, 1])],
        8: [(4, [2])],
        3: [(1, [0, 1]), (4, [2])],
    }


def test_figure_4d_a_user_without_comment_takes_the_videos_along_unseen(rig):
    ask(rig, "q2")
    (c,), (bucket,) = rig.sources("C"), rig.joined("V", "W")
    joined, comments = rig.open_joined(bucket), rig.view(c)
    by_user = joined.index(), comments.index(c.views[0].keys[0])
    l, r, _ = intersect(*everything(*by_user))
    (w,) = rig.sources("W")
    users = {
        rig.tuples(w)[rig.view(w).rows[joined.carrier_item[i]]]["usrID"] for a in l for i in entries(joined.index())[a]
    }
    assert users == {1, 8}
    # work after the intersection: 1 x 1 and 1 x 2 items; user 3 and the three videos behind are not looked at
    pairs = count_pairs(l, by_user[0].offsets, 0, len(by_user[0].order), r, by_user[1].offsets)
    assert sorted(pairs) == [1, 2]
    assert [row[2:] for row in rig.rows("q2")] == [(0, 1, 1, 0), (1, 1, 1, 0), (2, 8, 4, 1), (2, 8, 4, 2)]


def test_figure_4e_the_bucket_of_q3_keeps_row_ids_of_w_c_and_r(rig):
    ask(rig, "q3", "q3 and the videos")
    assert [row[2:] for row in rig.rows("q3")] == [(1, 1, 0), (8, 4, 1), (8, 4, 2)]
    # Q3's result becomes a bucket when another join follows. It holds ids only.
    (bucket,) = rig.joined("W", "C", "R")
    found = sorted(rows_behind(rig, bucket))
    assert found == [
        ((1, 1), 0, 1),
        ((8, 4), 1, 8),
        ((8, 4), 2, 8),
    ]
    assert [row[2:] for row in rig.rows("q3 and the videos")] == [
        (1, 1, 0, 0), (1, 1, 0, 1), (8, 4, 1, 2), (8, 4, 2, 2)
    ]  # fmt: skip


def test_figures_4d_and_e_one_key_is_one_stage_and_nothing_is_hashed_again(tmp_path, monkeypatch):
    """V ⋈ W is hashed by user before C can be joined; W ⋈ C goes on by user as it is, to R. Only V needs one more.

    Per query: its stages, how many items were hashed again, and which joined buckets were read.
    """
    hashed, hash_again = [], joined_output.key_hashes
    read, open_bucket = set(), BucketStore.open

    def counting(columns):
        hashed.append(len(columns[0][0]))
        return hash_again(columns)

    def opening(store, name):
        read.add(name)
        return open_bucket(store, name)

    monkeypatch.setattr(joined_output, "key_hashes", counting)
    monkeypatch.setattr(BucketStore, "open", opening)
    alone = {}
    for id in ("q1", "q2", "q3", "q3 and the videos"):
        hashed.clear()
        read.clear()
        tasks = Recording()
        rig = figure(tmp_path / id, tasks)
        ask(rig, id)
        joined = {ref.file: streams for streams in ("VW", "CW", "CRW") for ref in rig.joined(*streams)}
        stages = [name.partition(": ")[2] for name in tasks.stages]
        alone[id] = stages, list(hashed), [joined[name] for name in sorted(read & joined.keys())]
        rig.engine.close()
    assert alone == {
        "q1": (["source", "join 1"], [], []),
        "q2": (["source", "join 1", "join 2"], [4], ["VW"]),
        "q3": (["source", "join 1"], [], []),
        "q3 and the videos": (["source", "join 1", "join 2"], [3], ["CW", "CRW"]),
    }


class Recording(LocalExecutor):
    """Knows which stages it ran."""

    def __init__(self):
        self.stages = []

    def run(self, name, stage, shared, tasks):
        self.stages.append(name)
        return super().run(name, stage, shared, tasks)


def rows_behind(rig, bucket):
    """Follows the row ids of a bucket over W, C and R down to the tuples."""
    refs = {j.id: j for j in rig.engine.state.joined.values()} | rig.engine.state.sources
    nodes = {n.name: n for n in rig.engine.plan.nodes}

    def tuples(ref, node, item):
        """Per combination behind an item: {stream: tuple}."""
        if ref.id in rig.engine.state.sources:
            return [{ref.stream: rig.tuples(ref)[rig.view(ref).rows[item]]}]
        joined = rig.open_joined(ref)
        sides = (node.left, node.right) if joined.carrier_left else (node.right, node.left)
        keys = [k.left if joined.carrier_left else k.right for k in node.keys]
        assert len(keys) == 1
        carrier, partner = refs[int(joined.carrier_bucket[item])], refs[int(joined.partner_bucket[item])]
        if partner.id in rig.engine.state.sources:
            index = next(k for k in partner.views[0].keys if k[0][0] == "usrID")
            order = rig.view(partner).index(index).order
        else:
            order = rig.open_joined(partner).order
        partners = order[joined.partner_from[item] : joined.partner_to[item]]
        return [
            a | b
            for a in tuples(carrier, sides[0], joined.carrier_item[item])
            for p in partners
            for b in tuples(partner, sides[1], p)
        ]

    for item in range(bucket.items):
        for t in tuples(bucket, nodes[bucket.node], item):
            yield (t["W"]["usrID"], t["W"]["vID"]), t["C"]["n"], t["R"]["usrID"]
