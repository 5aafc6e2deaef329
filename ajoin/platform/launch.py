"""From settings to a running engine: the one place that `serve`, `demo` and `replay` share.

The executor (Spark, or this process) is started once and outlives engines, so an engine can be closed and
opened again on its state directory without starting Spark again.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ajoin.config import Settings
from ajoin.platform import logs
from ajoin.platform.optimizing import Optimizing
from ajoin.platform.periodic import Periodic
from ajoin.platform.platform import Pace, Platform
from ajoin.service.security import is_loopback
from optimizer.cost.model import Weights
from optimizer.errors import AJoinError, InvalidRequest, Unavailable
from runtime import plugins
from runtime.connectors.options import NOWHERE
from runtime.control.budgets import AT_ONCE, Pacing
from runtime.delivery.schedule import OnThreads, Schedule
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.engine.exchange import store_required
from runtime.execution.executor import Executor, LocalExecutor
from runtime.execution.fleet import Fleet
from runtime.kernels.warm import warm_up
from runtime.log.lock import StateLock
from runtime.machine.calibrate import calibrated
from runtime.store.claim import OWNER
from runtime.store.heartbeat import Pulse
from runtime.store.objects import below, objects_at
from runtime.store.sight import check_sight
from runtime.store.watch import Watch

logger = logging.getLogger("ajoin.platform")


def load_plugins(settings: Settings) -> None:
    """Those of installed packages, and those that the settings name."""
    plugins.load((*plugins.installed(), *settings.plugins))


def wall_clock() -> int:
    """Milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


@contextmanager
def executor(settings: Settings) -> Iterator[Executor]:
    """Where epochs run. Starting Spark takes some seconds; plug-ins come first, because one may fail, and because the
    workers are told which there are."""
    load_plugins(settings)
    if settings.executor == "local":
        yield LocalExecutor()
        return
    from runtime.spark.executor import SparkExecutor, is_local

    if not settings.store and not is_local(settings.spark_master):  # before Spark is started
        raise store_required()

    scratch = Path(tempfile.mkdtemp(prefix="ajoin-spark-"))
    try:
        options = {key: value for key, _, value in (text.partition("=") for text in settings.spark_conf)}
        spark = SparkExecutor.start(
            settings.spark_master,
            verbose=settings.verbose,
            local_dir=scratch,
            options=options,
            stage_timeout=settings.stage_timeout,
            worker_memory=settings.worker_memory,
        )
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def passing(settings: Settings) -> Iterator[Settings]:
    """For a demo or a replay, whose state must never get into the platform's: a folder of the store that goes when it
    ends."""
    if not settings.store:
        yield settings
        return
    name = f"passing-{uuid.uuid4().hex[:12]}"
    try:
        yield settings.model_copy(update={"store": below(settings.store, name)})
    finally:
        with suppress(AJoinError):
            objects_at(settings.store).delete_folder(name)


def open_engine(
    settings: Settings,
    executor: Executor,
    state_dir: Path | None = None,
    *,
    remote_callers: bool = False,
    delivery: Callable[[], Schedule] = OnThreads,
    finish_on_open: bool = True,
    suspend: tuple[str, ...] = (),
    pacing: Pacing = AT_ONCE,
) -> Engine:
    """Recover what the state directory holds, or start afresh in an empty one.

    `remote_callers`: other machines may call. Then requests may name no path of this machine outside `allowed_roots`.
    """
    load_plugins(settings)  # the state may need them
    if settings.cache_bytes and not settings.store:
        raise InvalidRequest(
            "cache_bytes bounds what machines keep of a store, and there is none",
            reason="CONFIG_INVALID",
            hint="set store as well",
        )
    roots = tuple(r if "://" in r else Path(r).resolve() for r in settings.allowed_roots)
    roots = roots or (NOWHERE if remote_callers else ())
    config = EngineConfig(
        partitions=settings.partitions,
        retention_epochs=settings.retention_epochs,
        retention_bytes=settings.retention_bytes,
        allowed_roots=roots,
        max_cost=settings.max_cost or None,
        delivery=delivery,
        finish_on_open=finish_on_open,
        suspend=suspend,
        pacing=pacing,
        store=settings.store or None,
        cache_bytes=settings.cache_bytes,
        pulse=Pulse(settings.heartbeat_interval, advertised(settings)),
        steering=settings.steering,
        fleet=fleet(settings, executor),
        weights=None if isinstance(executor, LocalExecutor) else _weights(executor),
    )
    return Engine.open(state_dir or settings.state_dir, executor, config, wall_clock)


def fleet(settings: Settings, executor: Executor) -> Fleet | None:
    """The executors of a cluster, if the platform is to choose how many; None: they are as they are."""
    if not settings.max_executors or settings.executor == "local":
        return None
    from runtime.spark.executor import SparkExecutor
    from runtime.spark.fleet import SparkFleet

    if not isinstance(executor, SparkExecutor) or executor.here:
        return None
    if executor.context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        raise InvalidRequest(
            "both the platform (max_executors) and Spark (spark.dynamicAllocation.enabled) are to choose the number of "
            "executors",
            reason="CONFIG_INVALID",
            hint="leave out one of the two",
        )
    return SparkFleet(executor.context, settings.min_executors, settings.max_executors)


def _weights(executor: Executor) -> Weights:
    """What indexing, intersecting, materializing and a stage cost on this machine: measured once, in about a second."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ajoin"
    return calibrated(cache, time.perf_counter, executor).weights


def advertised(settings: Settings) -> str:
    """The address at which others can call; empty: not known before the port is chosen."""
    if settings.advertise:
        return settings.advertise
    host, _, port = settings.listen.rpartition(":")
    if port == "0":
        return ""
    return f"{socket.gethostname()}:{port}" if host.strip("[]") in ("0.0.0.0", "::") else settings.listen


def watch(settings: Settings) -> Watch:
    """A look at the platform whose place is to be taken, after everything was checked that can be checked before."""
    if not settings.store:
        raise InvalidRequest(
            "a standby takes over what is in a store, and there is none",
            reason="CONFIG_INVALID",
            hint="set store as well, to the one of the platform",
        )
    StateLock(settings.state_dir).release()  # of its own: the platform's is in use
    return Watch(objects_at(settings.store), settings.heartbeat_interval, settings.standby_after_stop, time.monotonic)


def prepare(settings: Settings, executor: Executor) -> None:
    """What an opening would do first, done before: a standby has the time. A store that is away now may be back when it
    is needed, and executors may be let in until then; one that is empty may not be mounted."""
    try:
        if objects_at(settings.store).get(OWNER) is not None:
            check_sight(executor, settings.store)
    except Unavailable as outage:
        logger.warning("this standby could not take over now: %s", outage)
    warm_up()
    if not isinstance(executor, LocalExecutor):
        _weights(executor)


@contextmanager
def platform(
    settings: Settings, executor: Executor, state_dir: Path | None = None, suspend: tuple[str, ...] = ()
) -> Iterator[Platform]:
    """A started platform. It may be stopped before the block ends; stopping twice is harmless.

    An epoch that was planned before is run by the platform's own thread, so that it answers meanwhile. `suspend`: ids
    of queries that are to run no more.
    """
    engine = open_engine(
        settings,
        executor,
        state_dir,
        remote_callers=not is_loopback(settings.listen),
        finish_on_open=False,
        suspend=suspend,
        pacing=Pacing(settings.epoch_rows or None, settings.max_epochs_behind),
    )
    idle = max(settings.idle_interval, settings.epoch_interval)
    pace = Pace(settings.batch_interval, settings.epoch_interval, idle)
    with ExitStack() as parts:
        running = parts.enter_context(Platform(engine, clock=wall_clock, pace=pace, limits=settings.limits))
        optimizing = Optimizing(running)
        parts.enter_context(Periodic("periodic optimizer", optimizing.once, optimizing.pause))
        yield running


def configure_logging(settings: Settings) -> None:
    """This platform's own log goes to stderr, as lines for people or as JSON."""
    logging.basicConfig(level=settings.log_level.upper(), handlers=[logs.handler(settings.log_format)])
    if not settings.verbose:
        for noisy in ("py4j", "pyspark", "grpc", "asyncio"):
            logging.getLogger(noisy).setLevel(logging.ERROR)
