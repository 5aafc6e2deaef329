"""`ajoin serve`: the platform with its gRPC service, until it is told to stop."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ajoin.cli.shell import ConfigOption, JsonFlag, MasterOption, console, print_json, waiting
from ajoin.config import Config, Settings, load, parse_assignments

if TYPE_CHECKING:
    from ajoin.platform.platform import Platform
    from ajoin.service.limits import ServiceLimits
    from ajoin.service.security import Security
    from runtime.store.watch import Watch


def serve(
    listen: Annotated[str | None, typer.Option("--listen", help="Address to listen on.", metavar="ADDRESS")] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Everything that survives a restart.", file_okay=False)
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", help="Holds the state instead, for executors on other machines.", metavar="URI"),
    ] = None,
    spark_master: MasterOption = None,
    partitions: Annotated[int | None, typer.Option("--partitions", help="Join partitions.")] = None,
    batch_interval: Annotated[
        float | None, typer.Option("--batch-interval", help="Seconds in which requests form one batch.")
    ] = None,
    epoch_interval: Annotated[
        float | None, typer.Option("--epoch-interval", help="Least seconds between two epochs.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any other setting.", metavar="KEY=VALUE")] = None,
    plugin: Annotated[
        list[str] | None,
        typer.Option("--plugin", help="Module with functions and windows; can be repeated.", metavar="MODULE"),
    ] = None,
    tls_cert: Annotated[str | None, typer.Option("--tls-cert", help="Certificate of the service (PEM).")] = None,
    tls_key: Annotated[str | None, typer.Option("--tls-key", help="Its key (PEM).")] = None,
    tls_client_ca: Annotated[
        str | None, typer.Option("--tls-client-ca", help="Ask clients for a certificate of this authority (PEM).")
    ] = None,
    token_file: Annotated[
        str | None, typer.Option("--token-file", help="Ask clients for a token of this file.")
    ] = None,
    insecure: Annotated[
        bool | None, typer.Option("--insecure", help="Listen beyond this machine without TLS or tokens.")
    ] = None,
    control_topic: Annotated[
        str | None, typer.Option("--control-topic", help="Kafka topic with create and delete requests.")
    ] = None,
    control_brokers: Annotated[
        str | None, typer.Option("--control-brokers", help="Its brokers, host:port, with commas.")
    ] = None,
    suspend: Annotated[
        list[str] | None,
        typer.Option("--suspend", help="Suspend this query (or: all) before anything runs; can be repeated."),
    ] = None,
    standby: Annotated[
        bool | None,
        typer.Option("--standby", help="Wait beside a platform with the same --store; take over when it is gone."),
    ] = None,
    demo_streams: Annotated[
        bool, typer.Option("--demo-streams", help="Create the demo's streams V, W, C and R if missing.")
    ] = False,
    verbose: Annotated[bool | None, typer.Option("--verbose", help="Show what Spark logs.")] = None,
    log_level: Annotated[str | None, typer.Option("--log-level", help="debug, info, warning or error.")] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the effective configuration and end.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Start embedded Spark and the gRPC service; SIGTERM or Ctrl-C ends both gracefully."""
    flags = parse_assignments(set_ or []) | {
        key: value
        for key, value in {
            "listen": listen,
            "state_dir": state_dir,
            "store": store,
            "standby": standby,
            "spark_master": spark_master,
            "partitions": partitions,
            "batch_interval": batch_interval,
            "epoch_interval": epoch_interval,
            "plugins": plugin or None,
            "tls_cert": tls_cert,
            "tls_key": tls_key,
            "tls_client_ca": tls_client_ca,
            "token_file": token_file,
            "insecure": insecure,
            "control_topic": control_topic,
            "control_brokers": control_brokers,
            "verbose": verbose,
            "log_level": log_level,
        }.items()
        if value is not None
    }
    effective = load(flags, config)
    if print_config:
        _print(effective, as_json)
    else:
        _serve(effective.settings, demo_streams, tuple(suspend or ()), as_json)


def _print(config: Config, as_json: bool) -> None:
    if as_json:
        print_json(config.to_json())
    else:
        typer.echo(config.to_toml(), nl=False)


def _serve(settings: Settings, demo_streams: bool, suspend: tuple[str, ...], as_json: bool) -> None:
    from ajoin.platform import launch
    from ajoin.platform.control_topic import ControlTopic
    from ajoin.platform.control_topic import from_settings as control_from_settings
    from ajoin.platform.engine_thread import PlatformState
    from ajoin.platform.metrics import PlatformCollector, serve_metrics
    from ajoin.service import serve as serve_until_told
    from ajoin.service.limits import from_settings as limits_from_settings
    from ajoin.service.security import from_settings
    from runtime.store.objects import shown

    launch.configure_logging(settings)
    security = from_settings(settings)  # before Spark is started: it may say no
    limits = limits_from_settings(settings)
    control = control_from_settings(settings)
    watch = launch.watch(settings) if settings.standby else None

    def ready(address: str) -> None:
        if as_json:
            print_json({"listening": address, "state_dir": settings.state_dir})
        else:
            console().print(f"listening on [bold]{address}[/], state in {escape(str(settings.state_dir))}")
            console().print("[dim]end with Ctrl-C; in another terminal try:[/] ajoin status")

    with ExitStack() as running:
        running.enter_context(leaving_on_sigterm())
        with waiting("starting Spark" if settings.executor == "spark" else "starting") as say:
            executor = running.enter_context(launch.executor(settings))
            if watch is None:
                say(f"recovering from {shown(settings.store) or settings.state_dir}")
                platform = running.enter_context(launch.platform(settings, executor, suspend=suspend))
        if watch is not None:
            launch.prepare(settings, executor)

            def take_over(address: str) -> Platform:
                here = settings.model_copy(update={"listen": address})
                return running.enter_context(launch.platform(here, executor, suspend=suspend))

            place = _stand_by(settings, watch, take_over, security, limits, as_json)
            if place is None:
                return
            platform, address = place
            settings = settings.model_copy(update={"listen": address})
        if demo_streams:
            _create_demo_streams(platform)
        topic = None if control is None else running.enter_context(ControlTopic(platform, control))
        if settings.metrics_port:
            collectors = [PlatformCollector(platform), *([] if topic is None else [topic])]
            running.enter_context(serve_metrics(settings.metrics_host, settings.metrics_port, *collectors))
        serve_until_told(platform, settings.listen, ready, security, limits)
        if platform.state == PlatformState.FAILED:  # what was committed could be read until now
            raise platform.failure()
        if not as_json:
            console().print("stopped")


def _stand_by(
    settings: Settings,
    watch: Watch,
    take_over: Callable[[str], Platform],
    security: Security,
    limits: ServiceLimits,
    as_json: bool,
) -> tuple[Platform, str] | None:
    """The platform that was taken over and where it is to listen; None: told to stop before, or in the middle of it."""
    from ajoin.platform.standby import stand_by, told_to_stop
    from ajoin.service.standby import StandbyServer

    with StandbyServer(settings.listen, lambda: watch.address, security, limits) as server, told_to_stop() as told:
        if as_json:
            print_json({"standby": server.address, "state_dir": settings.state_dir})
        else:
            console().print(f"standing by on [bold]{server.address}[/]; end with Ctrl-C")
        platform = stand_by(watch, settings.heartbeat_interval, told.wait, lambda: take_over(server.address))
        return None if platform is None or told.is_set() else (platform, server.address)


@contextmanager
def leaving_on_sigterm() -> Iterator[None]:
    """Until the service listens for signals itself: leave through the context managers, which stop Spark."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _create_demo_streams(platform: Platform) -> None:
    from ajoin.demo.data import STREAMS

    present = {s.schema.name for s in platform.streams()}
    for stream in STREAMS:
        if stream.name not in present:
            platform.create_stream(stream.schema, stream.source).result()
