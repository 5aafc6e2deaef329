"""Large batches travel in pieces, and every piece is a place to go on from."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ajoin.client.results import Cursor
from ajoin.errors import InvalidRequest
from ajoin.service import results
from ajoin.wire import convert
from runtime.api import Cursor as LogCursor
from runtime.api import ResultBatch

BEFORE = Cursor(3, 1)
ROWS = 1000


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(results, "PIECE_BYTES", 1024)


def batch(rows: int = ROWS) -> ResultBatch:
    table = pa.RecordBatch.from_pydict({"x": pa.array(range(rows), pa.int64()), "s": ["text"] * rows})
    return ResultBatch("q", LogCursor(4, 0), table)


def pieces_of(given: ResultBatch, before: Cursor) -> list:
    return list(results._pieces(given, before))


def values(pieces) -> list[int]:
    return [v for p in pieces for v in pa.ipc.open_stream(p.arrow_ipc).read_all()["x"].to_pylist()]


def test_pieces_are_the_batch_in_order():
    pieces = pieces_of(batch(), BEFORE)
    assert len(pieces) > 5 and values(pieces) == list(range(ROWS))
    assert sum(p.rows for p in pieces) == ROWS
    assert max(len(p.arrow_ipc) for p in pieces) < 3 * 1024
    cursors = [convert.cursor_from_pb(p.cursor) for p in pieces]
    assert cursors == sorted(cursors) and cursors[-1] == Cursor(4, 0)
    assert all((c.epoch, c.sequence) == (3, 1) for c in cursors[:-1])


def test_every_piece_is_a_place_to_go_on_from():
    pieces = pieces_of(batch(), BEFORE)
    for i, piece in enumerate(pieces[:-1]):
        rest = pieces_of(batch(), convert.cursor_from_pb(piece.cursor))
        assert values(pieces[: i + 1]) + values(rest) == list(range(ROWS))


def test_a_small_batch_is_one_piece():
    (piece,) = pieces_of(batch(3), BEFORE)
    assert values([piece]) == [0, 1, 2] and convert.cursor_from_pb(piece.cursor) == Cursor(4, 0)


@pytest.mark.parametrize(("rows", "offset"), [(0, 0), (5, 5)])
def test_nothing_to_send_still_moves_the_cursor(rows, offset):
    (piece,) = pieces_of(batch(rows), Cursor(3, 1, offset))
    assert piece.rows == 0 and convert.cursor_from_pb(piece.cursor) == Cursor(4, 0)


def test_an_offset_beyond_the_batch_is_refused():
    with pytest.raises(InvalidRequest) as refused:
        pieces_of(batch(5), Cursor(3, 1, 6))
    assert refused.value.reason == "BAD_CURSOR"
