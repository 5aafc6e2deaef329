"""Plans and changelogs as JSON values, for the log in the state directory.

Shape: `{"format": 1, "kind": "plan" or "changelog", "nodes": [...], ...}`. `nodes` is a table of all sources
and joins, inputs before consumers; everything else names a node by its position there. So a join shared by
a thousand queries is written once, and read back as one object.

Reading is strict: an unknown format, a missing or additional field or a value of the wrong type is an
InternalError with reason LOG_CORRUPT, never a guess. A changed shape gets a new format number and keeps the
reader of the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, get_args

from optimizer.errors import InternalError
from optimizer.model.changelog import Changelog, Entry
from optimizer.model.invariants import validate_plan
from optimizer.model.plan import Attribute, JoinNode, KeyPart, Leaf, Node, Partitioning, Placement, Plan, SourceNode
from optimizer.model.types import ColumnType

FORMAT = 1
ENTRIES: Mapping[str, type[Entry]] = {entry.__name__: entry for entry in get_args(Entry)}


def plan_to_json(plan: Plan) -> dict[str, Any]:
    table = _Writer()
    placements = [
        {"uid": p.uid, "group": p.group, "slot": p.slot, "root": table.number(p.root)} for p in plan.placements
    ]
    return {
        "format": FORMAT,
        "kind": "plan",
        "version": plan.version,
        "nodes": table.nodes,
        "placements": placements,
        "bounds": list(plan.partitioning.bounds),
        "splits": [list(s) for s in plan.partitioning.splits],
    }


def plan_from_json(value: Any) -> Plan:
    """The plan, checked with `validate_plan`."""
    version, nodes, placements, bounds, splits = _document(
        value, "plan", "version", "nodes", "placements", "bounds", "splits"
    )
    table = _Reader(nodes)
    plan = Plan(
        _int(version),
        tuple(_placement(p, table) for p in _list(placements)),
        Partitioning(_ints(bounds), tuple(_pair(s) for s in _list(splits))),
    )
    validate_plan(plan)
    return plan


def changelog_to_json(changelog: Changelog) -> dict[str, Any]:
    table = _Writer()

    def written(value: Any) -> Any:
        if isinstance(value, Node):
            return table.number(value)
        return list(value) if isinstance(value, tuple) else value

    entries = [
        {"entry": type(e).__name__} | {f.name: written(getattr(e, f.name)) for f in fields(e)}
        for e in changelog.entries
    ]
    return {
        "format": FORMAT,
        "kind": "changelog",
        "from_version": changelog.from_version,
        "to_version": changelog.to_version,
        "nodes": table.nodes,
        "entries": entries,
    }


def changelog_from_json(value: Any) -> Changelog:
    from_version, to_version, nodes, entries = _document(
        value, "changelog", "from_version", "to_version", "nodes", "entries"
    )
    table = _Reader(nodes)
    # entries are flat: these are all the types their fields have
    readers: Mapping[object, Callable[[Any], Any]] = {
        "int": _int,
        "str": _str,
        "tuple[int, ...]": _ints,
        "Node": table.node,
        "JoinNode": table.join,
    }

    def entry(item: Any) -> Entry:
        name = item.get("entry") if isinstance(item, dict) else None
        if not isinstance(name, str) or name not in ENTRIES:
            raise _corrupt(f"unknown entry {item!r}")
        of = fields(ENTRIES[name])
        _, *values = _fields(item, "entry", *(f.name for f in of))
        return ENTRIES[name](*(readers[f.type](v) for f, v in zip(of, values, strict=True)))

    return Changelog(_int(from_version), _int(to_version), tuple(entry(e) for e in _list(entries)))


# -- the node table --------------------------------------------------------------------------------


class _Writer:
    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self._numbers: dict[Node, int] = {}

    def number(self, node: Node) -> int:
        if node not in self._numbers:
            row: dict[str, Any]
            if isinstance(node, SourceNode):
                row = {"stream": node.leaf.stream, "occurrence": node.leaf.occurrence, "group": node.group}
            else:
                left, right = self.number(node.left), self.number(node.right)
                row = {
                    "left": left,
                    "right": right,
                    "keys": [_key(k) for k in node.keys],
                    "group": node.group,
                }
            self.nodes.append(row)
            self._numbers[node] = len(self.nodes) - 1
        return self._numbers[node]


class _Reader:
    def __init__(self, rows: Any) -> None:
        self._nodes: list[Node] = []
        for row in _list(rows):
            self._nodes.append(self._source(row) if "stream" in _dict(row) else self._join(row))

    def join(self, number: Any) -> JoinNode:
        node = self.node(number)
        if not isinstance(node, JoinNode):
            raise _corrupt(f"node {number} is not a join")
        return node

    def node(self, number: Any) -> Node:
        at = _int(number)
        if not 0 <= at < len(self._nodes):
            raise _corrupt(f"there is no node {at} at this point")
        return self._nodes[at]

    def _source(self, row: Any) -> SourceNode:
        stream, occurrence, group = _fields(row, "stream", "occurrence", "group")
        return SourceNode(Leaf(_str(stream), _int(occurrence)), _int(group))

    def _join(self, row: Any) -> JoinNode:
        left, right, keys, group = _fields(row, "left", "right", "keys", "group")
        parts = tuple(_key_part(k) for k in _list(keys))
        return JoinNode(self.node(left), self.node(right), parts, _int(group))


def _key(k: KeyPart) -> list[Any]:
    return [*_attribute(k.left), *_attribute(k.right), k.type.value]


def _attribute(a: Attribute) -> tuple[str, int, str]:
    return a.leaf.stream, a.leaf.occurrence, a.column


def _key_part(value: Any) -> KeyPart:
    if len(_list(value)) != 7:
        raise _corrupt(f"{value!r} is not a key part")
    stream, occurrence, column, other_stream, other_occurrence, other_column, type_ = value
    if type_ not in list(ColumnType):
        raise _corrupt(f"{type_!r} is not a column type")
    return KeyPart(
        Attribute(Leaf(_str(stream), _int(occurrence)), _str(column)),
        Attribute(Leaf(_str(other_stream), _int(other_occurrence)), _str(other_column)),
        ColumnType(type_),
    )


def _placement(value: Any, table: _Reader) -> Placement:
    uid, group, slot, root = _fields(value, "uid", "group", "slot", "root")
    return Placement(_str(uid), _int(group), _int(slot), table.node(root))


# -- strict reading --------------------------------------------------------------------------------


def _document(value: Any, kind: str, *names: str) -> list[Any]:
    if not isinstance(value, dict) or value.get("format") != FORMAT or value.get("kind") != kind:
        raise _corrupt(f"not a {kind} of format {FORMAT}")
    return _fields(value, "format", "kind", *names)[2:]


def _fields(value: Any, *names: str) -> list[Any]:
    if _dict(value).keys() != set(names):
        raise _corrupt(f"expected the fields {', '.join(names)}, found {', '.join(map(str, value))}")
    return [value[name] for name in names]


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _corrupt(f"{value!r} is not an object")
    return value


def _list(value: Any) -> list[Any]:
    """A reader of JSON may hand over its lists as tuples."""
    if not isinstance(value, list | tuple):
        raise _corrupt(f"{value!r} is not a list")
    return list(value)


def _int(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _corrupt(f"{value!r} is not a whole number")
    return value


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise _corrupt(f"{value!r} is not a text")
    return value


def _ints(value: Any) -> tuple[int, ...]:
    return tuple(_int(v) for v in _list(value))


def _pair(value: Any) -> tuple[int, int]:
    if len(_list(value)) != 2:
        raise _corrupt(f"{value!r} is not a pair")
    return _int(value[0]), _int(value[1])


def _corrupt(what: str) -> InternalError:
    return InternalError(f"cannot read a plan from the log: {what}", reason="LOG_CORRUPT")
