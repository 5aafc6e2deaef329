"""How much memory a process may use: the machine's, or what the control groups above it leave."""

from __future__ import annotations

import os

from runtime.machine.memory import usable

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def groups(tmp_path, **limits):
    """A tree of control groups a/b, with the given limits, and this process in a/b."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    for where, limit in limits.items():
        folder = tmp_path if where == "top" else tmp_path / ("a" if where == "a" else "a/b")
        (folder / "memory.max").write_text(f"{limit}\n")
    mine = tmp_path / "self"
    mine.write_text("0::/a/b\n")
    return usable(tmp_path, mine)


def test_without_a_limit_it_is_the_machine(tmp_path):
    assert groups(tmp_path, b="max") == MACHINE


def test_the_lowest_limit_on_the_way_up_counts(tmp_path):
    assert groups(tmp_path, b="max", a=1 << 20, top=1 << 30) == 1 << 20


def test_a_limit_above_what_the_machine_has_is_none(tmp_path):
    assert groups(tmp_path, b=MACHINE * 2) == MACHINE


def test_control_groups_of_version_1(tmp_path):
    (tmp_path / "memory" / "a" / "b").mkdir(parents=True)
    (tmp_path / "memory" / "a" / "memory.limit_in_bytes").write_text(f"{1 << 21}\n")
    (tmp_path / "memory" / "a" / "b" / "memory.limit_in_bytes").write_text("9223372036854771712\n")  # none
    mine = tmp_path / "self"
    mine.write_text("5:devices:/\n4:cpu,memory:/a/b\n0::/\n")
    assert usable(tmp_path, mine) == 1 << 21


def test_where_there_are_no_control_groups_it_is_the_machine(tmp_path):
    assert usable(tmp_path, tmp_path / "missing") == MACHINE
