"""`python -m tests.poison --seeds 100`: the poison campaign; `--seed 17`: one seed again; `--kind NAME`: one kind only.

Exit code 1 when something is not as it must be. Each failing seed is printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tests.poison.campaign import Outcome, Tally, draw, run
from tests.poison.catalogue import CATALOGUE
from tests.poison.kinds import Kind
from tests.poison.service import session

SHOWN = 8


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.poison", description=__doc__)
    parser.add_argument("--seeds", type=int, help="how many (100, or 3 of one kind)")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one, and tell everything about it")
    parser.add_argument("--kind", action="append", help="only attacks of this kind; can be repeated")
    parser.add_argument("--list", action="store_true", help="print the catalogue and end")
    asked = parser.parse_args(arguments)
    if asked.list:
        print(listed())
        return 0
    kinds = None if asked.kind is None else [_named(parser, name) for name in asked.kind]
    if asked.seed is not None:
        return one(asked.seed, kinds)
    seeds = asked.seeds or (100 if kinds is None else 3)
    return many(range(asked.first, asked.first + seeds), kinds)


def listed() -> str:
    width = max(len(kind.name) for kind in CATALOGUE)
    return "\n".join(f"{k.name:<{width}}  {k.does}  -> {k.ends}" for k in CATALOGUE)


def many(seeds: range, kinds: Sequence[Kind] | None = None) -> int:
    tally, began = Tally(), time.monotonic()
    with session() as spark:
        for seed in seeds:
            at = time.monotonic()
            outcome = run(spark, seed, kinds)
            tally.add(outcome)
            if outcome.differences:
                print(f"FAILED seed {seed}", *outcome.differences[:SHOWN], sep="\n  ")
                print(f"  reproduce: {command(seed, kinds)}", flush=True)
            now = time.monotonic()
            print(f"seed {seed} took {now - at:.1f} s; {tally} in {now - began:.0f} s", flush=True)
    print(tally.table())
    print(f"{tally}; {'failed: ' + str(tally.failed) if tally.failed else 'nobody was harmed'}")
    return 1 if tally.failed else 0


def one(seed: int, kinds: Sequence[Kind] | None) -> int:
    _, attacks = draw(seed, kinds)
    print(f"seed {seed}: " + ", ".join(f"{a.kind.name} before step {a.step}" for a in attacks))
    with session() as spark:
        outcome: Outcome = run(spark, seed, kinds)
    for name, ending in outcome.endings:
        print(f"  {name}: {ending}")
    print("\n".join(outcome.differences) or f"{outcome.rows} rows, and nobody was harmed")
    return 1 if outcome.differences else 0


def command(seed: int, kinds: Sequence[Kind] | None = None) -> str:
    return " ".join([f"python -m tests.poison --seed {seed}", *(f"--kind {kind.name}" for kind in kinds or ())])


def _named(parser: argparse.ArgumentParser, name: str) -> Kind:
    known = {kind.name: kind for kind in CATALOGUE}
    if name not in known:
        parser.error(f"there is no kind {name!r}; --list prints them")
    return known[name]


if __name__ == "__main__":
    sys.exit(main())
