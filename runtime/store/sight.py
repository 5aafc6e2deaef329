"""Do executors see the store that the driver sees? Asked once, before the store is claimed.

The driver may reach a store that its executors do not: credentials only in its own environment, a path that is mounted
on one machine, another network. So it puts a small object, and tasks on all cores get it and put one of their own,
which the driver looks for. Nobody has lost anything if that goes wrong, because nothing was claimed yet.

An executor that joins later is not asked; what it cannot do, its tasks say, with the name of its machine
(runtime.spark.executor), and the epoch waits. Costs one small stage and a few requests per opening.
"""

from __future__ import annotations

import socket
import uuid
from contextlib import suppress
from typing import NamedTuple

from optimizer.errors import FailedPrecondition, Unavailable
from runtime.execution.executor import Executor
from runtime.store.objects import has_key, objects_at, shown


class Sight(NamedTuple):
    """What to look for: `name`, in the store at `uri`."""

    uri: str
    name: str


class Seen(NamedTuple):
    """`put`: the object by which a task answers; None: what it should have found was not there."""

    machine: str
    put: str | None


def check_sight(executor: Executor, uri: str) -> None:
    """STORE_NOT_SHARED if tasks see another place under this URI; what a task says if the store does not let it in."""
    if executor.here:
        return
    store, folder = objects_at(uri), f"sight-{uuid.uuid4().hex}"
    try:
        store.put(f"{folder}/driver", b"here", sync=False)
        for seen in executor.run("look at the store", look, Sight(uri, folder), range(executor.cores)):
            if seen.put is None or store.get(seen.put) is None:
                raise _elsewhere(uri, seen.machine)
    except Unavailable as outage:
        if not outage.message.startswith("on executor"):
            raise
        raise _shut_out(uri, outage) from outage
    finally:
        with suppress(Unavailable):
            store.delete_folder(folder)


def look(sight: Sight, task: int) -> Seen:
    """Runs as a task. It may run again, or twice."""
    store, machine = objects_at(sight.uri), socket.gethostname()
    if store.get(f"{sight.name}/driver") is None:
        return Seen(machine, None)
    name = f"{sight.name}/{uuid.uuid4().hex}"
    store.put(name, b"here", sync=False)
    return Seen(machine, name)


def _elsewhere(uri: str, machine: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"the executor on {machine} and the driver see different places as the store {shown(uri)}",
        reason="STORE_NOT_SHARED",
        hint="a path must be the same mount on the driver and all executors; with s3, gs, abfss or hdfs nothing is "
        "mounted",
    )


def _shut_out(uri: str, outage: Unavailable) -> Unavailable:
    """The driver was let in a moment ago."""
    missing = uri.startswith("s3://") and outage.reason == "STORE_REFUSED" and not has_key(uri)
    credentials = (
        "give executors credentials of their own: the role of their machines, their environment "
        "(--set spark_conf=spark.executorEnv.AWS_ACCESS_KEY_ID=...), or a key in the URI"
    )
    return Unavailable(
        f"{outage.message}; the driver is let in",
        reason=outage.reason,
        hint=credentials if missing else outage.hint,
    )
