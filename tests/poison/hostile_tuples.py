"""Tuples that cannot be decoded, have no time or an impossible one, are huge or strange; and files full of them.

Rows pushed to a good stream are judged by the oracle like all others: what counts, what is late, what is a dead letter.
"""

# ruff: noqa: E501  (one kind a line reads better)
from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Generator, Sequence
from typing import Any

from runtime.engine.quarantine import KILLS
from tests.poison.kinds import SERVED, Ending, How, Kind, invalid, one_call
from tests.poison.sabotage import KILLING
from tests.poison.scene import PAIR, Scene

Steps = Generator[None, None, Ending]
MOST = (1 << 63) - 1
YEAR_9999 = 253_402_300_799_000


def _dead(reason: str) -> Ending:
    return Ending(How.DEAD_LETTER, "", reason)


def _broken(name: str, does: str, reason: str, rows: Callable[[Scene, str, int], Sequence[Any]]) -> Kind:
    """Rows among the good ones of a good stream, each of which must become a dead letter. `rows`: from the stream's
    event-time column and a time that it accepts."""

    def attack(scene: Scene) -> Steps:
        yield  # there are good tuples before
        stream = scene.victim()
        column = scene.told.streams[stream]["time"]
        broken = list(rows(scene, column, scene.told.greatest(stream)))
        before = scene.hostile.stream(stream).dead_letter
        scene.push(stream, broken)
        yield
        assert scene.hostile.stream(stream).dead_letter >= before + len(broken)
        letters = scene.hostile.dead_letters(stream, limit=1000)
        found = [letter.reason for letter in letters if reason in letter.reason]
        return _dead(reason if len(found) >= len(broken) else str([letter.reason for letter in letters]))

    return Kind(name, does, _dead(reason), attack)


def _odd(name: str, does: str, rows: Callable[[Scene, str, int], Sequence[Any]]) -> Kind:
    """Rows that are fine, however they look: the oracle knows what every query makes of them."""

    def attack(scene: Scene) -> Steps:
        yield
        stream = scene.victim()
        column = scene.told.streams[stream]["time"]
        scene.push(stream, list(rows(scene, column, scene.told.greatest(stream))))
        yield
        return SERVED

    return Kind(name, does, SERVED, attack)


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


def _impossible_times(scene: Scene) -> Steps:
    left, right = scene.own("-l", judged=False), scene.own("-r", judged=False)
    scene.create(scene.over(left, right))
    times = (-(1 << 63), MOST, 1 << 62, -(1 << 62), MOST - 1)
    scene.push(left, [*({"k": 1, "ts": ts} for ts in times), {"k": 1, "ts": 5}])
    scene.push(right, [{"k": 1, "ts": ts} for ts in (6, *times)])
    yield
    assert [row["x"] for row in scene.rows(scene.name)] == [1]
    reasons = [letter.reason for letter in scene.hostile.dead_letters(left)]
    assert len(reasons) == len(times)
    return _dead("NULL or out of range" if all("NULL or out of range" in r for r in reasons) else str(reasons))


def _watermark_far_ahead(scene: Scene) -> Steps:
    """Whoever moves the watermark of a stream of its own to the end of time has a stream on which all is late."""
    left, right = scene.own("-l", max_ahead_ms=0), scene.own("-r")
    scene.owe(scene.over(left, right))
    scene.push(left, [{"k": 1, "ts": 5}])
    scene.push(right, [{"k": 1, "ts": 6}])
    scene.told.raise_watermark(left, 1 << 60)
    yield
    scene.push(left, [{"k": 1, "ts": 7}])
    yield
    late = scene.hostile.stream(left).late_dropped
    return Ending(How.LIMITED, "", f"{late} late")


def _far_ahead(scene: Scene) -> Steps:
    """Beyond the bound of a good stream; its watermark stays where it is, as the oracle says."""
    yield
    bounded = [name for name, line in scene.told.streams.items() if line.get("max_ahead_ms") != 0]
    stream = scene.rng.choice(sorted(bounded)) if bounded else scene.own()
    line = scene.told.streams.get(stream, {"time": "ts"})
    time = YEAR_9999 if "max_ahead_ms" not in line else 1 << 59
    scene.push(stream, [{line["time"]: time + n, "k": 1} for n in range(20)])
    yield
    letters = [x.reason for x in scene.hostile.dead_letters(stream, limit=1000) if "ahead of the clock" in x.reason]
    return _dead("ahead of the clock" if len(letters) >= 20 else str(letters))


def _jumps(scene: Scene) -> Steps:
    """In recorded data there is no clock to compare with, but there are neighbours."""
    left, right = scene.own("-l", judged=False, max_jump_ms=60_000), scene.own("-r", judged=False, max_jump_ms=60_000)
    scene.create(scene.over(left, right))
    for stream in (left, right):
        scene.push(stream, [{"k": n, "ts": n} for n in range(9)])
    yield
    scene.push(left, [*({"k": n, "ts": 10 + n} for n in range(9)), {"k": 1, "ts": 10**12}])
    yield
    assert (scene.hostile.stream(left).watermark or 0) < 60_000
    (letter,) = scene.hostile.dead_letters(left)
    return _dead("max_jump" if "(max_jump)" in letter.reason else letter.reason)


def _kills(scene: Scene) -> Steps:
    """A tuple among the good ones of a good stream that kills whatever task reads it."""
    yield
    stream = scene.victim()
    time, at = scene.told.streams[stream]["time"], scene.told.greatest(stream)
    scene.push(stream, [{"k": KILLING, time: at}], judged_as=["a dead letter"])
    yield
    found = [x.reason for x in scene.hostile.dead_letters(stream, limit=1000) if x.reason.startswith(KILLS)]
    return _dead(KILLS if len(found) == 1 else str(found))


def _bomb(scene: Scene) -> Steps:
    """A file of a megabyte that unpacks to more than a gigabyte."""
    stream = _files(scene)
    piece = gzip.compress(bytes(16 << 20))
    _appears(scene, "bomb.jsonl.gz", piece * 70)
    _appears(scene, "good.jsonl", _good_line(7))
    scene.until(lambda: scene.hostile.stream(stream).tuples == 1, "the good file is not read")
    scene.until(lambda: scene.hostile.stream(stream).dead_letter == 1, "the bomb is not reported")
    yield
    (letter,) = scene.hostile.dead_letters(stream)
    return _dead(KILLS if letter.reason.startswith(KILLS) else letter.reason)


def _huge_batch(scene: Scene) -> Steps:
    """50,000 tuples in one call, for a query that wants none of them."""
    left, right = scene.own("-l", judged=False), scene.own("-r")
    scene.create(scene.over(left, right, where="a.k < 0"))
    scene.push(left, [{"k": n, "s": "x" * 50, "ts": n // 100} for n in range(50_000)])
    yield
    assert scene.hostile.stream(left).tuples == 50_000
    assert scene.rows(scene.name) == []
    return SERVED


# -- files --------------------------------------------------------------------------------------------------------


def _files(scene: Scene, **options: Any) -> str:
    scene.file("in").mkdir()
    settings = {"path": scene.file("in"), **options}
    scene.hostile.create_stream(scene.name, columns=PAIR, time="ts", source="files", options=settings)
    return scene.name


def _appears(scene: Scene, name: str, content: bytes) -> None:
    """Whole, by rename."""
    hidden = scene.file(f".{name}")
    hidden.write_bytes(content)
    hidden.rename(scene.file("in") / name)


def _good_line(n: int) -> bytes:
    return json.dumps({"k": n, "s": "x", "ts": n}).encode() + b"\n"


def _garbage_files(scene: Scene) -> Steps:
    """Whatever is in the folder, the good file among it is read."""
    stream = _files(scene)
    garbage = {
        "a.parquet": scene.rng.randbytes(5_000),
        "b.parquet": b"PAR1" + scene.rng.randbytes(500) + b"PAR1",
        "c.csv": scene.rng.randbytes(3_000),
        "d.jsonl.gz": b"\x1f\x8b" + scene.rng.randbytes(1_000),
        "e.jsonl.gz": gzip.compress(_good_line(1) * 1000)[:-20],
    }
    for name, content in garbage.items():
        _appears(scene, name, content)
    _appears(scene, "f.jsonl", _good_line(7))
    scene.until(lambda: scene.hostile.stream(stream).tuples == 1, "the good file is not read")
    scene.until(lambda: scene.hostile.stream(stream).dead_letter >= len(garbage), "garbage is not reported")
    yield
    letters = scene.hostile.dead_letters(stream, limit=1000)
    unread = {letter.place.split()[0].rpartition("/")[2] for letter in letters}
    return _dead("each file is named" if all(any(n in u for u in unread) for n in garbage) else str(unread))


def _long_lines(scene: Scene) -> Steps:
    """Lines of megabytes, thousands of digits, nests without end, and a line that crashes Arrow's reader."""
    stream = _files(scene)
    lines = [
        b'{"k": 1, "ts": 5, "s": "' + b"x" * 3_000_000 + b'"}',
        b'{"k": ' + b"9" * 100_000 + b', "ts": 5}',
        b'{"k": 1, "ts": 5, "s": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b"null",
        b"\xff\xfe\x00",
        b"{" * 1_000,
    ]
    _appears(scene, "long.jsonl", b"\n".join(lines) + b"\n")
    scene.until(lambda: scene.hostile.stream(stream).dead_letter == len(lines) - 1, "a line is not reported")
    scene.until(lambda: scene.hostile.stream(stream).tuples == 1, "the long text is not read")
    yield
    longest = max(len(letter.text) + len(letter.reason) for letter in scene.hostile.dead_letters(stream))
    return _dead("at most 600 characters each" if longest <= 600 else f"{longest} characters")


def _folder_lost(scene: Scene) -> Steps:
    """The folder goes while it is read, and is a file for a while; it goes on when it is back."""
    stream = _files(scene)
    _appears(scene, "a.jsonl", _good_line(1))
    scene.until(lambda: scene.hostile.stream(stream).tuples == 1, "the first file is not read")
    shutil.rmtree(scene.file("in"))
    scene.file("in").write_text("no folder")
    yield
    scene.file("in").unlink()
    scene.file("in").mkdir()
    _appears(scene, "b.jsonl", _good_line(2))
    scene.until(lambda: scene.hostile.stream(stream).tuples == 2, "the stream does not go on")
    return SERVED


TUPLES = (
    _broken("not-objects", "numbers, texts, lists and nothing instead of rows", "expected an object",
            lambda s, time, at: [7, "text", [{"k": 1}], None, True, []]),
    _broken("no-time", "tuples whose time is NULL or missing", "NULL or out of range",
            lambda s, time, at: [{"k": 1, time: None}, {"k": 1}, {}]),
    _broken("time-of-a-wrong-type", "times that are texts, lists and fractions", "expected",
            lambda s, time, at: [{"k": 1, time: wrong} for wrong in ("yesterday", [1], 1.5, 1 << 70, True, "5")]),
    _broken("wrong-types", "values that their columns cannot hold", "column k: expected BIGINT",
            lambda s, time, at: [{"k": wrong, time: at} for wrong in ("seven", 1.5, 1 << 63, True, {"a": 1}, 1e300)]),
    _broken("not-json", "rows that are no JSON at all", "expected an object",
            lambda s, time, at: [b"\x00\xff", {1, 2}, object(), CYCLE]),
    _odd("columns-missing", "tuples without most of their columns, with others instead",
         lambda s, time, at: [{time: at}, {time: at, "k": 1, "x'; DROP TABLE V": 1, "": 2}]),
    _odd("null-flood", "100 tuples that are all NULL",
         lambda s, time, at: [{time: at, "k": None, "s": None, "d": None} for _ in range(100)]),
    _odd("extreme-keys", "the least and the greatest integers as keys",
         lambda s, time, at: [{time: at, "k": k} for k in (MOST, -MOST - 1, MOST, 0, -1)]),
    _odd("not-finite", "NaN, infinities and -0.0",
         lambda s, time, at: [{time: at, "k": 1, "d": d} for d in (float("nan"), float("inf"), float("-inf"), -0.0)]),
    _odd("huge-texts", "texts of 200 KB, of other scripts, of zeros",
         lambda s, time, at: [{time: at, "k": 1, "s": text} for text in ("x" * 200_000, "語" * 50_000, "\0" * 1_000, "\u202e𝄞")]),
    _odd("late-flood", "300 tuples from long ago",
         lambda s, time, at: [{time: at - 10**12 - n, "k": 1} for n in range(300)]),
    Kind("impossible-times", "times at both ends of 64 bits", _dead("NULL or out of range"), _impossible_times),
    Kind("far-ahead", "tuples of the year 9999", _dead("ahead of the clock"), _far_ahead),
    Kind("jumps", "a recorded tuple far beyond its neighbours", _dead("max_jump"), _jumps),
    one_call("watermark-refused", "a watermark beyond the clock", invalid("WATERMARK_AHEAD"),
             lambda s: s.service.platform.raise_watermark(s.own(), YEAR_9999).result(s.service.patience)),
    Kind("watermark-far-ahead", "moves its own stream to the end of time", Ending(How.LIMITED, "", "1 late"), _watermark_far_ahead),
    Kind("tuple-that-kills", "a tuple that kills every task that reads it", _dead(KILLS), _kills, slow=True),
    Kind("gzip-bomb", "a small file that unpacks to more than a worker's memory", _dead(KILLS), _bomb, slow=True),
    Kind("huge-batch", "50,000 tuples at once that nobody wants", SERVED, _huge_batch),
    Kind("garbage-files", "files of random bytes, cut off, with wrong checksums", _dead("each file is named"), _garbage_files),
    Kind("long-lines", "a file with lines of megabytes, and one that crashes parsers", _dead("at most 600 characters each"), _long_lines),
    Kind("input-folder-lost", "its input folder disappears while it is read", SERVED, _folder_lost),
)  # fmt: skip
