"""`ajoin cluster-demo`: the demo on a standalone Spark cluster; `ajoin pack`: the code for other machines."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ajoin.cli import demo
from ajoin.cli.serve import leaving_on_sigterm
from ajoin.cli.shell import ConfigOption, JsonFlag, console, print_json, waiting
from ajoin.config import load, parse_assignments


def cluster_demo(
    workers: Annotated[int, typer.Option("--workers", help="Worker processes.", min=1)] = 2,
    store: Annotated[
        str | None, typer.Option("--store", help="For its state; else a folder of this machine.", metavar="URI")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, e.g. partitions=4.", metavar="KEY=VALUE")
    ] = None,
    verbose: Annotated[bool | None, typer.Option("--verbose", help="Show what Spark logs.")] = None,
    config: ConfigOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Start a Spark master and workers on this machine, run the demo there, and stop them all."""
    defaults = {
        "spark_conf": "spark.executor.memory=512m",
        "log_level": "error",
        "verbose": verbose,
        "store": store,
    }
    asked = load(defaults | parse_assignments(set_ or []), config).settings
    from runtime.spark.standalone import Standalone

    out = console(stderr=as_json)
    with ExitStack() as running:
        running.enter_context(leaving_on_sigterm())
        folder = running.enter_context(tempfile.TemporaryDirectory(prefix="ajoin-cluster-", ignore_cleanup_errors=True))
        with waiting("starting a Spark master and its workers"):
            cluster = running.enter_context(Standalone(Path(folder), workers))
        out.print(f"Spark's master is [bold]{cluster.url}[/] (process {cluster.master.pid})")
        for worker in cluster.workers:
            out.print(f"  {worker.name}: process {worker.pid}, its own disk is {escape(str(worker.log.parent))}")
        shared = tuple(f"{key}={value}" for key, value in cluster.options.items())
        there = {
            "spark_master": cluster.url,
            "spark_conf": asked.spark_conf + shared,
            "store": asked.store or str(Path(folder) / "store"),  # all of them are on this machine
        }
        demo.run(asked.model_copy(update=there), as_json)
        running.enter_context(waiting("stopping the cluster"))


def pack(
    out: Annotated[Path, typer.Argument(help="The archive to write.", dir_okay=False)] = Path("ajoin-env.tar.gz"),
    plugin: Annotated[
        list[str] | None,
        typer.Option("--plugin", help="Plug-in to pack as well; can be repeated.", metavar="MODULE"),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Pack the platform and what its tasks import, for executors on machines that have neither."""
    from runtime.spark.pack import FOLDER, pack_environment

    with waiting(f"packing {out}"):
        packed = pack_environment(out, tuple(plugin or ()))
    conf = [f"spark.archives={out}#{FOLDER}", f"spark.executorEnv.PYTHONPATH=./{FOLDER}"]
    if as_json:
        print_json({"archive": out, "bytes": packed.bytes, "packages": packed.packages, "spark_conf": conf})
        return
    console().print(f"wrote [bold]{escape(str(out))}[/], {packed.bytes / 1e6:,.0f} MB: {', '.join(packed.packages)}")
    console().print("use it with", highlight=False)
    flags = f"--master URL --set spark_conf={','.join(conf)}"
    console().print(f"  PYSPARK_PYTHON=python{packed.python} ajoin serve {flags}", soft_wrap=True, highlight=False)
