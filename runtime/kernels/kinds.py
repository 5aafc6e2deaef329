"""Kinds of arrays, for kernels that are compiled for exactly one combination of them.

Numba compiles a kernel anew for every combination of argument kinds, and an array of a bucket file, which cannot be
written, is another kind than a fresh one: with four array arguments that is sixteen variants, each of which some epoch
would be the first to need. A kernel that only reads its arguments can be declared for arrays that cannot be
written; it then takes both, there is one variant, and it is loaded when its module is imported.
"""

from __future__ import annotations

import numba as nb


def _read(kind: nb.types.Type) -> nb.types.Array:
    return nb.types.Array(kind, 1, "C", readonly=True)


INTS = _read(nb.int64)
SHORTS = _read(nb.int32)
DOUBLES = _read(nb.float64)
WORDS = _read(nb.uint64)
MASK = _read(nb.boolean)
SETS = nb.types.Array(nb.uint64, 2, "C", readonly=True)
TABLE = nb.types.Array(nb.int64, 2, "C", readonly=True)
DOUBLE_TABLE = nb.types.Array(nb.float64, 2, "C", readonly=True)
MASK_TABLE = nb.types.Array(nb.boolean, 2, "C", readonly=True)
