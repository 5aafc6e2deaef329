"""One experiment as a file: parameters, panels that vary them, what the paper found, and targets.

A parameter has a dotted name (`queries.count`) and a default in PARAMETERS; anything else in a file is an
error. A panel is one plot of a figure: it sets parameters and sweeps some of them (the product of all
`sweep` lists, or the explicit `points`). With
--quick the parameters in `[quick]` (and a panel's own `quick`) win over everything else, so the same file describes
both runs.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ajoin.config import Settings

CONFIGS = Path(__file__).parent / "configs"

PARAMETERS: dict[str, Any] = {
    # what the point is called in plots when it differs in more than one parameter
    "label": "",
    # tuples
    "data.streams": 4,
    "data.keys": 500,
    "data.event_rate": 1000,  # per stream and second of event time
    "data.chunk_seconds": 6,
    "data.chunks": 20,
    "data.phase_chunks": 0,  # chunks after which selectivities change; 0: never
    # queries
    "queries.count": 1,
    "queries.ways": 2,
    "queries.similarity": 0.5,
    "queries.selectivity": "none",  # "none", "random", "disjoint", "swinging", or the share of tuples that pass
    "queries.parts": 1,  # of "disjoint"
    "queries.windows": [1, 2, 3],
    # this platform
    "engine.partitions": Settings().partitions,
    "engine.chunks_per_epoch": 1,
    "engine.groups": 0,  # force so many query groups; 0: the optimizer decides
    "engine.optimize_every": Settings().optimize_period,  # seconds between optimizations; 0: never
    "engine.submit": "at_start",  # or "adhoc": in batches between the first epochs
    "engine.submit_epochs": 4,
    "engine.sharing": "",  # "" as the system says, or cost, off, astream
    "engine.pipelined": True,
    "engine.epoch_rows": Settings().epoch_rows,
    # live runs
    "live.workload": "SC1",  # SC1, SC2 or at_start
    "live.rate": 1.0,  # requests per second
    "live.parallel": 20,
    "live.seconds": 30.0,
    "live.tuples_per_second": 10000.0,  # per stream
    "live.epoch_interval": 0.5,
    "live.batch_interval": 1.0,
    "live.ack_timeout": 15.0,
    "live.latency_threshold": 0.0,  # seconds of event-time latency that ask for an optimization; 0: never
    # plan changes
    "changes.kind": "all",
    "changes.epochs": 40,
    "changes.every": 4,
    "changes.batch": 50000,
    # the driver
    "run.seconds": 10.0,  # how long a timed run should keep a system busy
    "run.time_limit": 120.0,  # for one request to a system
    "run.settle_epochs": 16,  # before a platform's time counts: at most so many epochs until its plan stays as it is
    "run.warm_chunks": 2,
    "run.check_chunks": 1,
    "run.repeat": 1,
}

MEASURES = ("throughput", "memory", "live", "sustainable", "changes")


class ConfigError(Exception):
    """The file is wrong; the message says where."""


@dataclass(frozen=True)
class Panel:
    name: str
    title: str
    measure: str
    systems: tuple[str, ...]
    points: tuple[Mapping[str, Any], ...]
    plot: Mapping[str, Any]
    differs: Mapping[str, str] = field(default_factory=dict)
    """What makes each of the other platforms another system than this one here, in words."""


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    figure: str
    paper: str
    seed: int
    panels: tuple[Panel, ...]
    claims: tuple[Mapping[str, Any], ...] = ()
    targets: tuple[Mapping[str, Any], ...] = ()
    source: str = field(default="", compare=False)


def available() -> list[Path]:
    return sorted(CONFIGS.glob("*.toml"))


def load(config: str | Path, *, quick: bool = False) -> Experiment:
    """`config` is a path, or the name of a file in experiments/configs."""
    path = Path(config)
    if not path.exists():
        path = CONFIGS / f"{path.name.removesuffix('.toml')}.toml"
    if not path.exists():
        raise ConfigError(f"there is no experiment {config}; there are {', '.join(p.stem for p in available())}")
    text = path.read_text()
    try:
        return parse(path.stem, text, quick=quick)
    except (ConfigError, KeyError, TypeError, tomllib.TOMLDecodeError) as why:
        raise ConfigError(f"{path.name}: {why}") from why


def parse(name: str, text: str, *, quick: bool = False) -> Experiment:
    raw = tomllib.loads(text)
    base = PARAMETERS | _flat(raw.get("defaults", {}))
    brief = _flat(raw.get("quick", {})) if quick else {}
    panels = tuple(_panel(p, raw, base, brief, quick) for p in raw["panel"])
    return Experiment(
        name,
        raw["title"],
        str(raw.get("figure", "")),
        raw.get("paper", "").strip(),
        int(raw.get("seed", 1)),
        panels,
        tuple(raw.get("claim", ())),
        tuple(raw.get("target", ())),
        text,
    )


def _panel(
    p: Mapping[str, Any], raw: Mapping[str, Any], base: Mapping[str, Any], brief: Mapping[str, Any], quick: bool
) -> Panel:
    known = {"name", "title", "measure", "systems", "sweep", "points", "plot", "quick", "set", "differs"}
    if unknown := set(p) - known:
        raise ConfigError(f"panel {p.get('name')}: unknown {', '.join(sorted(unknown))}")
    own = p.get("quick", {}) if quick else {}
    sweep = own.get("sweep", p.get("sweep", {}))
    points = own.get("points", p.get("points", [{}]))
    least = dict(brief) | _flat(own.get("set", {}))
    measure = p.get("measure", raw.get("measure", "throughput"))
    if measure not in MEASURES:
        raise ConfigError(f"panel {p['name']}: measure {measure!r} is none of {', '.join(MEASURES)}")
    made = []
    for chosen in itertools.product(*sweep.values()):
        for point in points:
            varied = dict(zip(sweep, chosen, strict=True)) | _flat(point)
            made.append(_checked(dict(base) | _flat(p.get("set", {})) | dict(least) | varied, p["name"]))
    systems = own.get("systems", p.get("systems", raw.get("systems", ["ajoin"])))
    title, plot = p.get("title", p["name"]), p.get("plot", {})
    return Panel(p["name"], title, measure, tuple(systems), tuple(made), plot, p.get("differs", {}))


def _checked(parameters: dict[str, Any], where: str) -> dict[str, Any]:
    if unknown := set(parameters) - set(PARAMETERS):
        raise ConfigError(f"panel {where}: there is no parameter {', '.join(sorted(unknown))}")
    if parameters["data.streams"] < parameters["queries.ways"]:
        raise ConfigError(f"panel {where}: {parameters['queries.ways']}-way queries need as many streams")
    return parameters


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
