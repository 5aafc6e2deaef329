"""The parts of the Kafka connector that need no broker: options, offset arithmetic, decoding, borrowed clients."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from optimizer.errors import InvalidRequest
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors.base import ConnectorSpec, arrow_schema
from runtime.connectors.kafka import connection as kafka_connection
from runtime.connectors.kafka.connection import Connection, borrow
from runtime.connectors.kafka.encode import digest, encode_arrow, encode_json
from runtime.connectors.kafka.messages import _fast_json, decode_messages
from runtime.connectors.kafka.offsets import deal, shares
from runtime.connectors.kafka.read import Piece
from runtime.connectors.kafka.sink import topic_name
from runtime.connectors.kafka.source import KafkaSource, Start, parse_config
from runtime.connectors.registry import check_options, check_sink

SCHEMA = StreamSchema(
    "S",
    (
        Column("n", ColumnType.BIGINT),
        Column("x", ColumnType.DOUBLE),
        Column("s", ColumnType.STRING),
        Column("b", ColumnType.BOOLEAN),
        Column("ts", ColumnType.TIMESTAMP),
    ),
    "ts",
)
BASE = {"bootstrap": "localhost:9092", "topic": "clicks"}


# -- options -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Start("earliest")),
        ("LATEST", Start("latest")),
        ("1700000000000", Start("time", 1_700_000_000_000)),
        ("2026-01-31T12:00:00Z", Start("time", 1_769_860_800_000)),
        ("2026-01-31T12:00:00", Start("time", 1_769_860_800_000)),
        ("1:7, 0:3", Start("offsets", offsets=((0, 3), (1, 7)))),
    ],
)
def test_start(text, expected):
    assert parse_config({**BASE, "start": text}).start == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"start": "yesterday"}, "option start"),
        ({"start": "0:1,0:2"}, "option start"),
        ({"format": "avro"}, "one of json, arrow"),
        ({"topic": "a b"}, "option topic"),
        ({"topic": ".."}, "option topic"),
        ({"bootstrap": "localhost"}, "host:port"),
        ({"bootstrap": " , "}, "host:port"),
        ({"max_messages": "0"}, "max_messages"),
        ({"security.protocol": "TLS"}, "one of PLAINTEXT, SSL"),
        ({"ssl.ca_file": "x"}, "did you mean ssl.cafile"),
        ({"sasl.plain_password": "env:HOME"}, "AJOIN_SECRET_"),
        ({"sasl.plain_password": "env:AJOIN_SECRET_NOT_SET"}, "which is not set"),
        ({"group": "g"}, "has no option 'group'"),
    ],
)
def test_what_is_wrong_is_refused_when_the_stream_is_created(options, said):
    with pytest.raises(InvalidRequest, match=said) as refused:
        check_options(ConnectorSpec("kafka", tuple({**BASE, **options}.items())), SCHEMA)
    assert refused.value.reason == "BAD_CONNECTOR_OPTION"


def test_security_settings_reach_the_client_under_its_own_names_and_are_not_printed(monkeypatch, tmp_path):
    monkeypatch.setenv("AJOIN_SECRET_KAFKA", "hunter2")
    security = {
        "security.protocol": "sasl_ssl",
        "ssl.cafile": str(tmp_path / "ca.pem"),
        "ssl.check_hostname": "false",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.plain_username": "me",
        "sasl.plain_password": "env:AJOIN_SECRET_KAFKA",
    }
    config = parse_config({**BASE, "bootstrap": "a:1, [::1]:2", **security})
    assert config.connection.arguments == {
        "bootstrap_servers": ["a:1", "[::1]:2"],
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(tmp_path / "ca.pem"),
        "ssl_check_hostname": False,
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "me",
        "sasl_plain_password": "hunter2",
    }
    (read,) = KafkaSource(config).reads({"topic": "", "next": {}}, {"topic": "", "next": {"0": 1}})
    assert "hunter2" not in f"{config} {read} {config.connection}"
    with pytest.raises(InvalidRequest, match="a path inside"):
        parse_config({**BASE, **security}, [tmp_path / "elsewhere"])


def test_a_sink_is_checked_without_a_broker():
    check_sink(ConnectorSpec("kafka", (("bootstrap", "127.0.0.1:9"),)))
    with pytest.raises(InvalidRequest, match="one of exactly-once, at-least-once"):
        check_sink(ConnectorSpec("kafka", (("bootstrap", "127.0.0.1:9"), ("guarantee", "maybe"))))


@given(st.lists(st.text(max_size=300), unique=True, max_size=20))
def test_topic_names_are_legal_and_different(ids):
    names = [topic_name("ajoin.{query}", id) for id in ids]
    assert len(set(names)) == len(ids)
    assert all(
        len(n) <= 249 and set(n) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
        for n in names
    )


# -- offsets -------------------------------------------------------------------------------------------------

WAITING = st.dictionaries(st.integers(0, 9), st.integers(1, 1000), max_size=8)


@given(WAITING, st.integers(1, 2000))
def test_shares_use_the_limit_and_keep_proportions(waiting, most):
    got = shares(waiting, most)
    total = sum(waiting.values())
    assert sum(got.values()) == min(total, most)
    assert all(0 < n <= waiting[p] for p, n in got.items())
    if total > most:
        assert all(abs(got.get(p, 0) - n * most / total) < 1 for p, n in waiting.items())


@given(WAITING, st.integers(1, 6), st.integers(1, 500))
def test_dealing_covers_every_offset_once_in_nearly_equal_parts(ranges, most, least):
    pieces = [Piece(p, 100, 100 + n) for p, n in sorted(ranges.items())]
    dealt = deal(pieces, most, least)
    whole = [(p.partition, o) for p in pieces for o in range(p.start, p.end)]
    assert [(p.partition, o) for mine in dealt for p in mine for o in range(p.start, p.end)] == whole
    sizes = [sum(p.end - p.start for p in mine) for mine in dealt]
    assert len(dealt) <= most
    if len(sizes) > 1:
        assert min(sizes) >= least and max(sizes) - min(sizes) <= 1


# -- messages ------------------------------------------------------------------------------------------------

GOOD = st.fixed_dictionaries(
    {"ts": st.integers(-(2**40), 2**40)},
    optional={
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | st.text(max_size=8) | st.sampled_from(["null", "}\n{", "} null"]),
        "b": st.none() | st.booleans(),
        "more": st.none()
        | st.lists(st.none() | st.dictionaries(st.text(max_size=2), st.none(), max_size=2), max_size=2),
    },
)
ODD = st.sampled_from(
    [
        None,
        b"",
        b"null",
        b"{",
        b"}",
        b"[]",
        b'{"n":1}{"n":2}',
        b'{"n":',
        b"1}",
        b'{"n":"x"}',
        b"\xff",
        b'{"n":1}\n{"n":2}',
    ]
) | st.binary(max_size=12)


def wire(row):
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass")


@given(st.lists(GOOD.map(wire) | ODD, max_size=12))
@example([b'{"n":1}{"n":2}', b'{"n":', b"3}"])
@example([b'{"n":1} null {"n":2}'])
@example([b'{"n":{}', b"{}}"])
def test_each_message_is_a_tuple_or_a_dead_letter_whatever_its_neighbours_are(values):
    offsets = [10 + 3 * i for i in range(len(values))]
    together = decode_messages("json", values, offsets, SCHEMA, "t partition 0")
    alone = [decode_messages("json", [v], [o], SCHEMA, "t partition 0") for v, o in zip(values, offsets, strict=True)]
    assert together.dead == [letter for one in alone for letter in one.dead]
    assert together.table.equals(pa.concat_tables([arrow_schema(SCHEMA).empty_table(), *(a.table for a in alone)]))
    assert all(one.table.num_rows + len(one.dead) == 1 for one in alone)


@given(st.lists(GOOD.map(wire), min_size=1, max_size=12))
def test_the_fast_way_agrees_with_the_careful_one(values):
    fast = _fast_json(values, SCHEMA)
    careful = decode_messages("json", [*values, None], range(len(values) + 1), SCHEMA, "t").table
    assert fast is None or fast.equals(careful)


def test_clean_messages_take_the_fast_way():
    assert _fast_json([b'{"n":1,"ts":5}', b'{"s":null,"b":true}'], SCHEMA) is not None


def ipc(table: pa.Table, file: bool = False) -> bytes:
    buffer = pa.BufferOutputStream()
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue().to_pybytes()


def test_arrow_messages_of_different_shapes_and_the_row_that_is_wrong():
    values = [
        ipc(pa.table({"n": [1, 2], "ts": [5, 6]})),
        ipc(pa.table({"n": pa.array([3.0, 3.5]), "ts": [7, 8]}), file=True),
        ipc(pa.table({"other": [1]})),
        ipc(pa.table({"s": pa.array(["a", "b"]).dictionary_encode()})),
    ]
    loaded = decode_messages("arrow", values, [4, 5, 6, 7], SCHEMA, "t partition 1")
    assert loaded.table["n"].to_pylist() == [1, 2, 3, None, None, None]
    assert loaded.table["s"].to_pylist() == [None, None, None, None, "a", "b"]
    (letter,) = loaded.dead
    assert letter.place == "t partition 1 offset 5 row 2"


@given(st.lists(GOOD, min_size=1, max_size=20), st.data())
def test_damaged_arrow_messages_are_dead_letters_or_tuples_but_never_a_crash(rows, data):
    table = pa.table({"s": pa.array([r.get("s") for r in rows], pa.string()), "n": [r.get("n") for r in rows]})
    raw = bytearray(ipc(table))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    loaded = decode_messages("arrow", [bytes(raw), ipc(pa.table({"n": [1]}))], [0, 1], SCHEMA, "t")
    loaded.table.validate(full=True)
    assert loaded.table["n"].to_pylist()[-1] == 1


def test_text_that_is_no_utf8_costs_only_its_row():
    raw = ipc(pa.table({"s": ["good", "b\u00e4d"], "n": [1, 2]}))
    assert raw.count("\u00e4".encode()) == 1
    loaded = decode_messages("arrow", [raw.replace("\u00e4".encode(), b"\xff\xff")], [3], SCHEMA, "t")
    assert loaded.table["s"].to_pylist() == ["good"]
    assert [letter.place for letter in loaded.dead] == ["t offset 3 row 2"]


@given(st.lists(GOOD, min_size=1, max_size=12), st.integers(200, 2000))
def test_what_is_encoded_can_be_decoded(rows, most):
    table = decode_messages("json", [wire(r) for r in rows], range(len(rows)), SCHEMA, "t").table
    for format, messages in (("json", encode_json(table, "")), ("arrow", encode_arrow(table, most))):
        values = [value for _, value in messages]
        back = decode_messages(format, values, range(len(values)), SCHEMA, "t")
        assert back.dead == []
        assert back.table.equals(table)
    assert digest("q", 1, encode_json(table, "")) != digest("q", 2, encode_json(table, ""))


# -- clients -------------------------------------------------------------------------------------------------


class Client:
    closed = False

    def close(self) -> None:
        self.closed = True


def test_clients_are_lent_to_one_at_a_time_used_again_and_thrown_away_after_a_failure():
    here, there = Connection(("here:1",)), Connection(("there:1",))
    with borrow("test", here, Client) as one, borrow("test", here, Client) as two:
        assert one is not two
    with borrow("test", there, Client) as other:
        assert other not in (one, two)
    with borrow("test", here, Client) as again:
        assert again in (one, two)
    with pytest.raises(RuntimeError), borrow("test", here, Client) as failing:
        raise RuntimeError
    assert failing.closed
    with borrow("test", here, Client) as fresh:
        assert fresh is not failing and not fresh.closed
    kafka_connection.close_idle()
    assert one.closed and two.closed and other.closed


def test_few_idle_clients_are_kept():
    made = []

    def make() -> Client:
        made.append(Client())
        return made[-1]

    for n in range(20):
        with borrow("test", Connection((f"host{n}:1",)), make):
            pass
    assert [c.closed for c in made] == [True] * 12 + [False] * 8
    kafka_connection.close_idle()
