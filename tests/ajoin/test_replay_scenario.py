"""The scenario grammar: what each line becomes, and one clear message for every way to get it wrong."""

from pathlib import Path

import pytest

from ajoin.replay.scenario import Scenario, ScenarioError, read
from ajoin.replay.steps import CreateSql, Declare, EndEpoch, Feed, FeedFile, Punctuate, Restart, Step
from runtime.api import DeleteQuery, ForceGroups, ForceOrder, Optimize, ScaleTo, SplitPartition, Unpin

V = '{"stream": "V", "schema": {"ts": "TIMESTAMP", "vID": "BIGINT"}, "time": "ts"}'


def scenario(folder: Path, *lines: str | bytes) -> Scenario:
    path = folder / "scenario.jsonl"
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return read(path)


def test_every_line_kind_becomes_its_step(tmp_path: Path) -> None:
    (tmp_path / "v.parquet").touch()
    found = scenario(
        tmp_path,
        '{"stream": "V", "schema": {"ts": "TIMESTAMP", "vID": "BIGINT"}, "time": "ts", '
        '"watermark_delay_ms": 5, "allowed_lateness_ms": 7}',
        '{"create": "q1", "sql": "SELECT 1"}',
        '{"delete": "q1", "expect_error": true}',
        "",
        '{"event": "V", "row": {"ts": 1, "vID": null, "extra": [1]}}',
        '{"events": "V", "file": "v.parquet"}',
        '{"epoch": true}',
        '{"watermark": "V", "ts": -22}',
        '{"optimize": "full"}',
        '{"optimize": "incremental"}',
        '{"force": {"query": "q2", "order": [["V", "W"], "C"]}}',
        '{"force": {"query": "q2", "order": ["V", "W", "C"]}}',
        '{"force": {"groups": {"q1": 0, "q2": 1}}}',
        '{"scale": {"partitions": 4}}',
        '{"scale": {"split": {"partition": 0, "ways": 2}}}',
        '{"restart": "graceful"}',
        '{"restart": "kill"}',
        '{"unpin": "all"}',
        '{"unpin": "scale"}',
        '{"unpin": {"query": "q1"}}',
    )
    assert found.steps == (
        Step(1, Declare("V", (("ts", "TIMESTAMP"), ("vID", "BIGINT")), "ts", 5, 7)),
        Step(2, CreateSql("q1", "SELECT 1")),
        Step(3, DeleteQuery("q1"), expect_error=True),
        Step(5, Feed("V", {"ts": 1, "vID": None, "extra": [1]})),
        Step(6, FeedFile("V", tmp_path / "v.parquet")),
        Step(7, EndEpoch()),
        Step(8, Punctuate("V", -22)),
        Step(9, Optimize("full")),
        Step(10, Optimize("incremental")),
        Step(11, ForceOrder("q2", (("V", "W"), "C"))),
        Step(12, ForceOrder("q2", (("V", "W"), "C"))),
        Step(13, ForceGroups((("q1", 0), ("q2", 1)))),
        Step(14, ScaleTo(4)),
        Step(15, SplitPartition(0, 2)),
        Step(16, Restart(graceful=True)),
        Step(17, Restart(graceful=False)),
        Step(18, Unpin()),
        Step(19, Unpin(scale=True)),
        Step(20, Unpin(("q1",))),
    )


MALFORMED = [
    ("{", "not valid JSON"),
    ("nonsense", "not valid JSON"),
    ('{"epoch": true} {"epoch": true}', "not valid JSON"),
    (b'{"delete": "\xff"}', "not UTF-8"),
    ("[]", "must be a JSON object"),
    ("7", "must be a JSON object"),
    ("[" * 100_000, "not usable JSON"),
    ("{}", "no leading key"),
    ('{"creat": "q1", "sql": "x"}', "no leading key"),
    ('{"create": "q1", "sql": "x", "epoch": true}', "more than one leading key: create, epoch"),
    ('{"event": "V", "events": "V", "row": {}}', "more than one leading key"),
    ('{"delete": "q1", "delete": "q2"}', "'delete' appears twice"),
    ('{"create": "q1"}', "needs 'sql'"),
    ('{"create": "", "sql": "x"}', "'create' must be a non-empty string"),
    ('{"create": 1, "sql": "x"}', "'create' must be a non-empty string, not 1"),
    ('{"create": "q1", "sql": ["x"]}', "'sql' must be a non-empty string"),
    ('{"create": "q1", "sql": "x", "comment": "y"}', "unknown key 'comment'"),
    ('{"delete": null}', "'delete' must be a non-empty string, not null"),
    ('{"delete": "q1", "expect_error": "yes"}', "'expect_error' must be true or false"),
    ('{"delete": "q1", "expect_eror": true}', "unknown key 'expect_eror'"),
    ('{"stream": "X", "time": "ts"}', "needs 'schema'"),
    ('{"stream": "X", "schema": {"ts": "TIMESTAMP"}}', "needs 'time'"),
    ('{"stream": "X", "schema": ["ts"], "time": "ts"}', "'schema' must be an object"),
    ('{"stream": "X", "schema": {}, "time": "ts"}', "at least one column"),
    ('{"stream": "X", "schema": {"ts": 3}, "time": "ts"}', "'schema.ts' must be a non-empty string"),
    ('{"stream": "X", "schema": {"ts": "T", "ts": "T"}, "time": "ts"}', "'ts' appears twice"),
    ('{"stream": "X", "schema": {"ts": "T"}, "time": "ts", "watermark_delay_ms": -1}', "at least 0, not -1"),
    ('{"stream": "X", "schema": {"ts": "T"}, "time": "ts", "watermark_delay_ms": 1.5}', "must be an integer"),
    (
        '{"stream": "X", "schema": {"ts": "T"}, "time": "ts", "allowed_lateness_ms": true}',
        "must be an integer",
    ),
    ('{"event": "V"}', "needs 'row'"),
    ('{"event": "V", "row": [1, 2]}', "'row' must be an object, not [1, 2]"),
    ('{"event": "V", "row": {}, "ts": 1}', "unknown key 'ts'"),
    ('{"event": "Q", "row": {}}', "stream 'Q' is not declared"),
    ('{"events": "V"}', "needs 'file'"),
    ('{"events": "V", "file": "missing.parquet"}', "there is no file"),
    ('{"events": "Q", "file": "missing.parquet"}', "stream 'Q' is not declared"),
    ('{"epoch": false}', "'epoch' must be true, not false"),
    ('{"epoch": 1}', "'epoch' must be true, not 1"),
    ('{"watermark": "V"}', "needs 'ts'"),
    ('{"watermark": "V", "ts": "22"}', "'ts' must be an integer"),
    ('{"watermark": "V", "ts": 9223372036854775808}', "64 bits"),
    ('{"watermark": "Q", "ts": 22}', "stream 'Q' is not declared"),
    ('{"optimize": "now"}', "'full' or 'incremental'"),
    ('{"optimize": {}}', "'full' or 'incremental'"),
    ('{"force": {}}', "needs 'query'"),
    ('{"unpin": "q1"}', "'unpin' must be 'all' or 'scale'"),
    ('{"unpin": {"queries": ["q1"]}}', "needs 'query'"),
    ('{"force": {"query": "q1"}}', "needs 'order'"),
    ('{"force": {"query": "q1", "order": "V"}}', "nested list of aliases"),
    ('{"force": {"query": "q1", "order": ["V"]}}', "'order' holds"),
    ('{"force": {"query": "q1", "order": [["V", 3], "C"]}}', "'order' holds 3"),
    ('{"force": {"query": "q1", "order": ["V", "W"], "groups": {}}}', "unknown key 'query'"),
    ('{"force": {"groups": ["q1"]}}', "'groups' must be an object"),
    ('{"force": {"groups": {"q1": "a"}}}', "'groups.q1' must be an integer"),
    ('{"force": {"groups": {"q1": -1}}}', "at least 0"),
    ('{"scale": 4}', "'scale' must be an object"),
    ('{"scale": {}}', "needs 'split'"),
    ('{"scale": {"partitions": "4"}}', "'partitions' must be an integer"),
    ('{"scale": {"partitions": 4, "split": {}}}', "unknown key 'split'"),
    ('{"scale": {"split": {"partition": 0}}}', "needs 'ways'"),
    ('{"scale": {"split": {"partition": 0, "ways": null}}}', "'ways' must be an integer"),
    ('{"restart": true}', "'graceful' or 'kill'"),
    ('{"restart": "now"}', "'graceful' or 'kill'"),
]


@pytest.mark.parametrize(("line", "words"), MALFORMED, ids=[str(i) for i in range(len(MALFORMED))])
def test_a_wrong_line_is_refused_by_number(tmp_path: Path, line: str | bytes, words: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        scenario(tmp_path, V, "", line, '{"epoch": true}')
    assert refused.value.line == 3
    assert str(refused.value).startswith("line 3: ")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_first_wrong_line_is_the_one_reported(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as refused:
        scenario(tmp_path, V, "{}", "nonsense")
    assert refused.value.line == 2


def test_a_stream_is_declared_before_its_data(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="line 1: stream 'V' is not declared"):
        scenario(tmp_path, '{"event": "V", "row": {}}', V)


def test_an_expected_error_is_left_to_the_run(tmp_path: Path) -> None:
    found = scenario(
        tmp_path,
        '{"event": "Q", "row": {}, "expect_error": true}',
        V,
        '{"events": "V", "file": "missing.csv", "expect_error": true}',
    )
    assert [step.expect_error for step in found.steps] == [True, False, True]


def test_a_missing_scenario_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"cannot read the scenario .*No such file"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(ScenarioError, match="cannot read the scenario"):
        read(tmp_path)


def test_an_empty_scenario_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    assert scenario(tmp_path).steps == ()
    assert len(scenario(tmp_path, b"\xef\xbb\xbf" + V.encode()).steps) == 1
