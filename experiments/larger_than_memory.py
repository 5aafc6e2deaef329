"""State larger than memory: the same long-window join without a limit, and with a quarter of its state as memory.

    python -m experiments.larger_than_memory [--quick] [--folder DIR]

Two generated streams, one two-way join whose window stays open for the whole run, so every epoch adds to the state and
joins what is new with all that is old. Each life is a process of its own with the executor inside it (a JVM beside it
would only blur what is measured):

    unlimited       all the memory there is
    limited         to a quarter of the state; the state directory is on disk, mapped

The limit is a control group's (version 1 or 2), where it counts everything: the interpreter, arrays, and the pages of
files that are cached or mapped. Where no control group can be made, the report says so. Both lives must deliver the
same rows: their number and an order-free checksum over all columns are compared. A life that is killed for its memory
is reported as such. Times are those of the epochs, without the start of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ajoin.sql import parse_query
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery, ResultBatch
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor

COLUMNS = ("k", *(f"c{i}" for i in range(9)))
GROUPS = Path("/sys/fs/cgroup")


# -- one life, in a process of its own ------------------------------------------------------------------------------


def live(folder: Path, epochs: int, tuples: int) -> dict[str, Any]:
    """Figures of one life: rows, checksum, state and seconds."""
    now = [0]
    config = EngineConfig(partitions=1, retention_epochs=1, pipelined=False)
    engine = Engine.open(folder, LocalExecutor(), config, lambda: now[0])
    for seed, name in enumerate(("V", "W")):
        engine.create_stream(*_stream(name, seed, tuples, keys=20 * epochs * tuples))
    outputs = ", ".join(f"{s}.{c} AS {s}_{c}" for s in "VW" for c in COLUMNS)
    sql = f"SELECT {outputs} FROM V JOIN W ON V.k = W.k WINDOW TUMBLING (SIZE {epochs + 1} SECONDS)"
    engine.apply([CreateQuery("q", parse_query(sql, engine.schemas()))])
    engine.run_epoch()
    rows, checksum, seconds = 0, 0, []
    for _ in range(epochs):
        now[0] += 1000
        engine.run_epoch()
        seconds.append(engine.status().epoch_seconds)
        for batch in engine.delivered(engine.epoch):
            rows += batch.rows.num_rows
            checksum = (checksum + checksum(batch)) % (1 << 64)
    status = engine.status()
    engine.abandon()
    return {
        "rows": rows,
        "checksum": f"{checksum:016x}",
        "state_bytes": status.bucket_bytes,
        "seconds": sum(seconds),
        "last_epoch": seconds[-1],
        "resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _stream(name: str, seed: int, tuples: int, keys: int) -> tuple[StreamSchema, ConnectorSpec]:
    typed = tuple(Column(c, ColumnType.BIGINT) for c in COLUMNS)
    options = {f"column.{c}": f"uniform(1,{keys})" for c in COLUMNS}
    options |= {"rate": str(tuples), "seed": str(seed), "batch": str(2 * tuples)}
    schema = StreamSchema(name, (*typed, Column("ts", ColumnType.TIMESTAMP)), "ts")
    return schema, ConnectorSpec("generator", tuple(sorted(options.items())))


def checksum(batch: ResultBatch) -> int:
    """A sum over rows, so that their order does not matter, of a product that depends on every column's place."""
    mixed = np.zeros(batch.rows.num_rows, np.uint64)
    for column in batch.rows.columns:
        plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        mixed = (mixed ^ plain.to_numpy(zero_copy_only=False).astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return int(mixed.sum(dtype=np.uint64))


# -- limits -----------------------------------------------------------------------------------------------------------


@contextmanager
def memory_group() -> Iterator[tuple[Path, str] | None]:
    """A control group inside the one this process is in, and the name of its limit; None where none can be made."""
    made = next((m for m in (_make(*at) for at in _candidates()) if m is not None), None)
    try:
        yield made
    finally:
        if made is not None:
            made[0].rmdir()


def _candidates() -> Iterator[tuple[Path, str]]:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            yield GROUPS / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
        elif controllers == "":
            yield GROUPS / path.lstrip("/"), "memory.max"


def _make(parent: Path, limit: str) -> tuple[Path, str] | None:
    group = parent / f"ajoin-memory-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        return None
    if (group / limit).exists():
        return group, limit
    group.rmdir()
    return None


def child(arguments: list[str], group: tuple[Path, str] | None, limit: int | None) -> dict[str, Any] | None:
    """Run one life; None: it was killed. It joins the group before it is anything at all."""
    join = None
    if group is not None and limit is not None:
        (group[0] / group[1]).write_text(str(limit))

        def join() -> None:
            (group[0] / "cgroup.procs").write_text(str(os.getpid()))

    command = [sys.executable, "-m", "experiments.larger_than_memory", "--life", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=join)
    if done.returncode == -9:
        return None
    if done.returncode:
        raise RuntimeError(done.stderr)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


# -- the comparison -------------------------------------------------------------------------------------------------


def compare(folder: Path, epochs: int, tuples: int) -> None:
    def life(name: str, *more: str, limit: int | None = None) -> dict[str, Any] | None:
        arguments = ["--folder", str(folder / name), "--epochs", str(epochs), "--tuples", str(tuples), *more]
        return child(arguments, group, limit)

    with memory_group() as group:
        free = life("unlimited")
        assert free is not None, "killed without a limit: this machine has too little memory"
        state = free["state_bytes"]
        print(f"state {_mb(state)}, {free['rows']:,} rows, memory limited to {_mb(state // 4)}\n")
        print("| life | epochs together | last epoch | resident, most | slowdown |\n|---|---|---|---|---|", flush=True)
        _row("unlimited", free, free)
        if group is None:
            print("\nno control group can be made here: memory cannot be limited\n")
        else:
            _row("limited", life("limited", limit=state // 4), free)


def _row(name: str, life: dict[str, Any] | None, free: dict[str, Any]) -> None:
    if life is None:
        print(f"| {name} | killed: it needs more memory | | | |", flush=True)
        return
    same = [life[figure] == free[figure] for figure in ("rows", "checksum", "state_bytes")]
    assert all(same), (life, free)
    ratio = life["seconds"] / free["seconds"]
    cells = (f"{life['seconds']:.1f} s", f"{life['last_epoch']:.2f} s", _mb(life["resident_bytes"]), f"{ratio:.2f}")
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.larger_than_memory", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about 1.4 GB of state instead of 8 GB")
    parser.add_argument("--folder", type=Path, help="where the state goes: a disk, not memory")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--tuples", type=int, help="per stream and epoch")
    parser.add_argument("--life", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    epochs, tuples = asked.epochs or (20 if asked.quick else 80), asked.tuples or (360_000 if asked.quick else 500_000)
    if asked.life:
        print(json.dumps(live(asked.folder, epochs, tuples)))
        return
    with tempfile.TemporaryDirectory(prefix="ajoin-memory-", dir=asked.folder) as folder:
        compare(Path(folder), epochs, tuples)


if __name__ == "__main__":
    main()
