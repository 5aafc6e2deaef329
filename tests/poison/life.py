"""One life: good queries that come and go over random streams, and attacks that begin somewhere in it.

Before each step its control lines are carried out and attacks begin or go on; then the step's tuples, the good ones and
those of the attacks, are handed over and committed; then everybody's rows are read on from the last cursor, through
gRPC. In the end all windows are closed, the attacks come to their ends, and every row is compared with the oracle's.
"""

from __future__ import annotations

import traceback
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

from ajoin.client.client import Client
from ajoin.client.results import Cursor
from runtime.control.events import FOREVER
from runtime.results.factorized import expand
from runtime.results.fold_rows import REVISION
from tests.oracle import check, check_report, run_oracle
from tests.poison.kinds import Ending, Kind
from tests.poison.scene import Scene
from tests.poison.service import Service
from tests.poison.told import Told

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Planned:
    """An attack and the step before which it begins."""

    kind: Kind
    step: int


class Life:
    def __init__(self, service: Service, lines: Sequence[Line], attacks: Sequence[Planned], seed: str) -> None:
        self._service, self._lines, self._attacks, self._seed = service, lines, attacks, seed
        self._told = Told(service.good)
        self._running: dict[Kind, Generator[None, None, Ending]] = {}
        self._cursors: dict[str, Cursor] = {}
        self.endings: dict[Kind, Ending] = {}
        self.differences: list[str] = []

    @property
    def rows(self) -> int:
        """Of the queries that the oracle judges."""
        return sum(len(self._told.rows[id]) for id in self._told.owed)

    def live(self) -> None:
        steps = _steps(self._lines)
        for number, lines in enumerate(steps):
            for line in lines:
                self._carry_out(line)
            for planned in self._attacks:
                if planned.step == number and planned.kind not in self._running:
                    self._begin(planned.kind)
            self._commit()
        while self._running:
            self._commit()
        self._close_all_windows()
        self._service.check_serving()
        self.differences += self._compare()

    # -- steps --------------------------------------------------------------------------------------------------------

    def _carry_out(self, line: Line) -> None:
        """A control line, by the good tenant or, what concerns the plan, by the operator."""
        good, operator, told = self._service.good, self._service.operator, self._told
        match line:
            case {"stream": name, "schema": schema, "time": time, **rest}:
                good.create_stream(name, columns=schema, time=time, source="push", **rest)
                told.streams[name] = line
                told.declared(name, schema, time, **rest)
            case {"create": id, "sql": sql}:
                good.create_query(sql, id=id)
                told.created(id, sql)
            case {"delete": id}:
                good.delete_query(id)
                told.deleted(id)
            case {"event": stream, "row": row}:
                told.push(stream, [row])
            case {"watermark": stream, "ts": ts}:
                told.raise_watermark(stream, ts)
            case {"force": {"query": id, "order": order}}:
                operator.force_order(f"good/{id}", order)
            case {"force": {"groups": groups}}:
                operator.force_groups({f"good/{id}": group for id, group in groups.items()})
            case {"scale": {"partitions": partitions}}:
                operator.scale(partitions)
            case {"scale": {"split": split}}:
                operator.split(**split)
            case {"unpin": "all"}:
                operator.unpin()
            case {"optimize": mode}:
                operator.optimize(mode)
            case _:
                raise ValueError(f"no line of a life under attack: {line}")

    def _begin(self, kind: Kind) -> None:
        scene = Scene(self._service, self._told, kind.name, Random(f"{self._seed}-{kind.name}"))
        self._running[kind] = kind.attack(scene)
        self._resume(kind)

    def _go_on(self) -> None:
        for kind in sorted(self._running, key=lambda kind: kind.last):
            self._resume(kind)

    def _resume(self, kind: Kind) -> None:
        try:
            next(self._running[kind])
            return
        except StopIteration as end:
            ending: Ending = end.value
            if ending != kind.ends:
                self.differences.append(f"{kind.name}: must end as {kind.ends}, and is {ending}")
            self.endings[kind] = ending
        except AssertionError as wrong:
            at = traceback.extract_tb(wrong.__traceback__)[-1]
            self.differences.append(f"{kind.name}: {wrong or 'not so'} ({at.line})")
        except Exception as failure:
            self.differences.append(f"{kind.name}: {type(failure).__name__}: {failure}")
        del self._running[kind]

    def _commit(self) -> None:
        """Hand over the step's tuples, wait until they are committed, read everybody's rows, let the attacks go on."""
        platform = self._service.platform
        rows, marks = self._told.step()
        before = {name: _seen(platform, name) for name in rows}
        waiting = [platform.push(stream, own) for stream, own in rows.items()]
        waiting += [platform.raise_watermark(stream, ts) for stream, ts in marks]
        for future in waiting:
            future.result(self._service.patience)
        self._service.until(
            lambda: (
                all(_seen(platform, name) >= before[name] + len(own) for name, own in rows.items())
                and all((w := platform.stream(stream).watermark) is not None and w >= ts for stream, ts in marks)
            ),
            "a step is not committed",
        )
        self._service.check_serving()
        self._read()
        self._go_on()

    def _close_all_windows(self) -> None:
        platform, streams = self._service.platform, self._told.declared_streams
        for stream in streams:
            platform.raise_watermark(stream, None).result(self._service.patience)
        self._service.until(
            lambda: all(platform.stream(stream).watermark == FOREVER for stream in streams),
            "watermarks do not reach the end",
        )
        self._service.until(
            lambda: all(self._told.readers[id].query(id).epochs_behind == 0 for id in self._told.owed),
            "postponed rows do not come",
        )
        self._read()

    # -- rows ------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Every subscriber reads on, after its last cursor."""
        for id, client in self._told.readers.items():
            outputs = client.query(id).outputs
            results = client.results(id, cursor=self._cursors.get(id), timeout=self._service.patience)
            for batch in results.batches:
                self._told.rows[id] += rows_of(expand(batch.table), outputs)
            if results.cursor is not None:
                self._cursors[id] = results.cursor

    def _compare(self) -> list[str]:
        expected = run_oracle(self._told.lines)
        told = {id: _told_about(self._told.readers[id], id) for id in self._told.owed}
        rows = {id: self._told.rows[id] for id in self._told.owed}
        streams = {s.schema.name: s for s in self._service.operator.streams()}
        counters = {
            counter: {name: getattr(streams[name], counter) for name in expected.streams}
            for counter in ("tuples", "late_dropped", "dead_letter")
        }
        return check(expected, rows, told) + check_report(expected, counters)


def _steps(lines: Sequence[Line]) -> list[list[Line]]:
    steps: list[list[Line]] = [[]]
    for line in lines:
        if "epoch" in line:
            steps.append([])
        else:
            steps[-1].append(line)
    return steps


def _seen(platform: Any, stream: str) -> int:
    info = platform.stream(stream)
    return int(info.tuples + info.late_dropped + info.dead_letter)


def _told_about(client: Client, id: str) -> Mapping[str, Any]:
    q = client.query(id)
    return {"state": q.state, "active_from": q.active_from, "active_until": q.active_until, "rows": q.rows}


def rows_of(table: pa.Table, outputs: Sequence[str]) -> list[Line]:
    """Rows as the oracle compares them: times as milliseconds, everything else as it is."""
    columns = {
        name: (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    own = REVISION in columns and REVISION not in outputs
    return [
        {
            "window_start": columns["window_start"][i],
            "window_end": columns["window_end"][i],
            "revision": columns[REVISION][i] if own else 0,
            "row": {name: columns[name][i] for name in outputs},
        }
        for i in range(table.num_rows)
    ]
