"""The command line: `ajoin`.

    shell.py     output, errors and options all commands share
    streams.py   ajoin stream create | list | show | delete | reset-watermark | restart
    queries.py   ajoin query create | delete | suspend | resume | list | show
    tail.py      ajoin tail
    inspect.py   ajoin explain | status | version
    steer.py     ajoin optimize | scale | force order | force groups | unpin | settings | set
    serve.py     ajoin serve
    tokens.py    ajoin token create | list
    state.py     ajoin state inspect | verify | gc | suspend
    replay.py    ajoin replay
    demo.py      ajoin demo
    cluster.py   ajoin cluster-demo | pack

Importing this package must stay cheap (shell completion does it at every keystroke), so commands import Spark
and gRPC only when they run.
"""

from __future__ import annotations

import typer

from ajoin.cli import cluster, demo, inspect, queries, replay, serve, state, steer, streams, tail, tokens
from ajoin.cli.shell import AJoinGroup

app = typer.Typer(
    name="ajoin",
    cls=AJoinGroup,
    help="Ad-hoc shared stream queries: many windowed joins and aggregations, one long-lived Spark pipeline.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve.serve)
app.command("demo")(demo.demo)
app.command("cluster-demo")(cluster.cluster_demo)
app.command("pack")(cluster.pack)
app.add_typer(streams.app, name="stream")
app.add_typer(queries.app, name="query")
app.command("tail")(tail.tail)
app.command("explain")(inspect.explain)
app.command("status")(inspect.status)
app.command("optimize")(steer.optimize)
app.command("scale")(steer.scale)
app.add_typer(steer.force, name="force")
app.command("unpin")(steer.unpin)
app.command("settings")(steer.settings)
app.command("set")(steer.set_setting)
app.add_typer(tokens.app, name="token")
app.add_typer(state.app, name="state")
app.command("replay")(replay.replay)
app.command("version")(inspect.version)


def main() -> None:
    app(prog_name="ajoin")


__all__ = ["app", "main"]
