"""`python -m tests.faults --seeds 200`: the fault campaign; `--seed 17 --shrink`: one seed again, made small.

Exit code 1 when some seed differs from the oracle. Each failing seed is printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.campaign import Tally, live, run
from tests.lives import describe, shrink

SHOWN = 8
EVERY = 10


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one, and tell everything about it")
    parser.add_argument("--shrink", action="store_true", help="with --seed: look for a smaller life that still fails")
    asked = parser.parse_args(arguments)
    if asked.seed is not None:
        return one(asked.seed, asked.shrink)
    return many(range(asked.first, asked.first + asked.seeds))


def many(seeds: range) -> int:
    logging.disable(logging.WARNING)  # damage that was repaired, every time
    try:
        return _many(seeds)
    finally:
        logging.disable(logging.NOTSET)


def _many(seeds: range) -> int:
    tally, began = Tally(), time.monotonic()
    for seed in seeds:
        fate, _, outcome = run(seed)
        tally.add(fate, outcome)
        if outcome.differences:
            print(f"FAILED {fate}", *outcome.differences[:SHOWN], sep="\n  ")
            print(f"  reproduce: {command(seed)}", flush=True)
        elif tally.seeds % EVERY == 0:
            print(f"{tally} in {time.monotonic() - began:.0f} s", flush=True)
    print(f"{tally}; {'failed: ' + str(tally.failed) if tally.failed else 'no difference from the oracle'}")
    return 1 if tally.failed else 0


def one(seed: int, smaller: bool) -> int:
    fate, life, outcome = run(seed)
    print(fate)
    if outcome.differences and smaller:
        life = shrink(life, lambda candidate: bool(live(fate, candidate).differences))
        outcome = live(fate, life)
    path = Path(tempfile.gettempdir()) / f"ajoin-fault-{seed}.jsonl"
    path.write_text(describe(life), encoding="utf-8")
    print(f"died at {', '.join(outcome.died) or 'no point'}; {len(life)} lines: {path}")
    print("\n".join(outcome.differences) or "engine and oracle agree")
    return 1 if outcome.differences else 0


def command(seed: int) -> str:
    return f"python -m tests.faults --seed {seed}"


if __name__ == "__main__":
    sys.exit(main())
