"""A join's result for the joins above it: collected from matches, indexed by their key, written as a joined bucket.

An item is one carrier item and a closed list of partners, or, if both sides hold leaves that later keys need (`flat`),
one combination: a list of length one.

Where the key has the hash by which the join has found its items, they need not be hashed again, and mostly stand in
their order: a match is walked by hash, and only what several pairs of buckets have brought must be sorted together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.errors import InternalError
from optimizer.model.plan import Leaf
from runtime.buckets.file import BucketFile
from runtime.buckets.held import held
from runtime.buckets.indexes import Arrays, put_index
from runtime.buckets.refs import JoinedRef
from runtime.buckets.views import INDEX, JOINED_ARRAYS, RowRefs, put_exposed
from runtime.columns.querysets import Words, bitset, widen
from runtime.execution.physical import JoinSpec, OutputSpec
from runtime.kernels import csr
from runtime.operators.inputs import Directory, split_by_bucket
from runtime.operators.keys import KeyHashes, key_hashes
from runtime.operators.matches import Lists, Match, Side, laid_out, pieces

Ints = npt.NDArray[Any]

ITEM = 56
"""Bytes of an item without its query set."""

MOST_BYTES = 1 << 30
"""Of items collected for one joined bucket: a join of joins that lays out its pairs (`flat`) could make any number."""


_NONE = np.empty(0, np.uint64)


class _Items(NamedTuple):
    """Items of the joined bucket, column by column; see runtime.buckets.views.Joined."""

    carrier_bucket: npt.NDArray[np.int64]
    carrier_item: npt.NDArray[np.int32]
    partner_bucket: npt.NDArray[np.int64]
    partner_from: npt.NDArray[np.int32]
    partner_to: npt.NDArray[np.int32]
    lo: npt.NDArray[np.int64]
    hi: npt.NDArray[np.int64]
    sets: Words
    partner_item: npt.NDArray[np.int32]
    """The partner of a list of length one; anything else where lists are closed."""
    hashes: npt.NDArray[np.uint64]
    """Of the key, if it is the one that the join has found them by; else none."""


class Made(NamedTuple):
    """A joined bucket as it was written, and what is in it."""

    ref: JoinedRef
    file: BucketFile


class JoinedOutput:
    """Collects one re-indexed result of a join and writes it as joined bucket number `bucket`."""

    def __init__(
        self, directory: Directory, spec: JoinSpec, output: OutputSpec, bucket: int, epoch: int, version: int
    ) -> None:
        self.directory, self.spec, self.output, self.bucket = directory, spec, output, bucket
        self.epoch, self.version = epoch, version
        self.slots = bitset(output.users, spec.words)
        exposed = set(output.exposed)
        self.flat = not (exposed <= set(spec.left.leaves) or exposed <= set(spec.right.leaves))
        self.carrier_left = self.flat or exposed <= set(spec.left.leaves)
        self._parts: list[_Items] = []
        self._bytes = 0

    def add(self, match: Match) -> None:
        chosen = match.only(self.slots)
        if chosen is None:
            return
        l, r = chosen.left, chosen.right
        if self.flat:
            for piece in pieces(chosen):
                p, left, right, position, sets = laid_out(chosen, piece)
                self._keep(chosen, l, r, p + piece.pairs.start, left, Lists(position, position + 1), sets, right)
        elif self.carrier_left:
            for first, (pair, items, sets) in chosen.carried_left():
                p = pair + first
                self._keep(chosen, l, r, p, items, chosen.right_lists(p), sets, items)
        else:
            for first, (pair, items, sets) in chosen.carried_right():
                p = pair + first
                self._keep(chosen, r, l, p, items, chosen.left_lists(p), sets, items)

    def _keep(
        self,
        match: Match,
        carrier: Side,
        partner: Side,
        p: Ints,
        items: Ints,
        lists: Lists,
        sets: Words,
        partners: Ints,
    ) -> None:
        n = len(p)
        if n:
            self._bytes += n * (ITEM + 8 * self.spec.words)
            if self._bytes > MOST_BYTES:
                raise InternalError(
                    f"join {self.spec.name} hands on more than {MOST_BYTES >> 20} MB at once in one task",
                    reason="STAGE_FAILED",
                    hint="select less before this join, or raise the number of partitions",
                )
            self._parts.append(_Items(
                np.full(n, carrier.bucket, np.int64), items, np.full(n, partner.bucket, np.int64),
                lists.first.astype(np.int32), lists.end.astype(np.int32), match.lo[p], match.hi[p],
                widen(sets, self.spec.words), partners,
                match.left.index.hashes[match.l_entries[p]] if self.output.same_hash else _NONE,
            ))  # fmt: skip

    def finish(self) -> Made | None:
        """None if there is nothing that a join above could match."""
        if not self._parts:
            return None
        made = _Items(*(np.concatenate(column) for column in zip(*self._parts, strict=True)))
        arrays: Arrays = {name: getattr(made, name) for name in JOINED_ARRAYS}
        rows = {leaf: self._exposed(made, leaf) for leaf in self.output.exposed}
        for leaf, refs in rows.items():
            put_exposed(arrays, leaf, refs)
        hashes, usable = self._hashes(made, rows)
        items = np.arange(len(made.lo)) if usable is None else np.flatnonzero(usable)
        if not len(items):
            return None
        put_index(arrays, INDEX, csr.grouped(items, hashes, made.lo, made.hi), made.sets, spans=True)
        meta = {"node": self.spec.name, "epoch": self.epoch, "version": self.version, "carrier_left": self.carrier_left}
        file, size = self.directory.store.write(f"b{self.bucket}.bucket", meta, arrays)
        ref = JoinedRef(
            self.bucket, self.spec.name, self.output.key, self.spec.group, self.epoch, self.version, file,
            len(made.lo), size, int(made.lo.max()), int(made.hi.min()), self.output.exposed,
        )  # fmt: skip
        return Made(ref, BucketFile(file, meta, held(arrays)))

    def _hashes(self, made: _Items, rows: Mapping[Leaf, RowRefs]) -> KeyHashes:
        if self.output.same_hash:
            return KeyHashes(made.hashes, None)
        return key_hashes([
            (self.directory.rows(leaf, self.spec.group, *rows[leaf]).column(column), type)
            for leaf, column, type in self.output.key
        ])  # fmt: skip

    def _exposed(self, made: _Items, leaf: Leaf) -> RowRefs:
        """The source row of an exposed leaf behind every item."""
        left, right = self.spec.left, self.spec.right
        carrier, partner = (left, right) if self.carrier_left else (right, left)
        if leaf in carrier.leaves:
            side, refs = carrier, RowRefs(made.carrier_bucket, made.carrier_item)
        else:
            side, refs = partner, RowRefs(made.partner_bucket, made.partner_item)
        if side.child is None:
            return refs
        buckets, items = np.empty(len(refs.items), np.int64), np.empty(len(refs.items), np.int32)
        for bucket, positions in split_by_bucket(refs.buckets):
            behind = self.directory.joined_bucket(bucket).exposed(leaf)
            at = slice(None) if positions is None else positions
            buckets[at], items[at] = behind.buckets[refs.items[at]], behind.items[refs.items[at]]
        return RowRefs(buckets, items)
