"""Writing a file atomically: whole or not at all, whatever goes wrong in between."""

from __future__ import annotations

import os
import stat

import pytest

from runtime.crashpoints import Crashed, arm
from runtime.files import write_atomically


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_the_folder_is_made_and_the_size_is_told(tmp_path):
    path = tmp_path / "new" / "x"
    assert write_atomically(path, b"12345") == 5
    assert write_atomically(path, lambda file: file.write(b"123"), sync=True) == 3
    assert path.read_bytes() == b"123"
    assert names(path.parent) == ["x"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    def fail(file):
        file.write(b"half")
        raise OSError("disk full")

    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["x"]


def test_a_killed_writer_leaves_the_old_file_and_the_next_one_its_remains(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(Crashed), arm("file.written"):
        write_atomically(path, b"new", point="file.written")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == [".x.tmp", "x"]
    write_atomically(path, b"newer", point="file.written")
    assert path.read_bytes() == b"newer"
    assert names(tmp_path) == ["x"]


def test_several_writers_of_one_path_do_not_meet(tmp_path):
    path = tmp_path / "x"

    def other_writer(_):
        write_atomically(path, b"other", several_writers=True)

    write_atomically(path, b"mine", several_writers=True, before_rename=other_writer)
    assert path.read_bytes() == b"mine"
    assert names(tmp_path) == ["x"]


def test_before_the_file_appears_it_is_whole_under_its_hidden_name(tmp_path):
    seen = []
    path = tmp_path / "x"
    write_atomically(path, b"whole", before_rename=lambda p: seen.append((p.read_bytes(), path.exists())))
    assert seen == [(b"whole", False)]


def test_a_secret_is_never_readable_by_others(tmp_path):
    modes = []
    old = os.umask(0)
    try:
        write_atomically(
            tmp_path / "x", b"s", mode=0o600, before_rename=lambda p: modes.append(stat.S_IMODE(p.stat().st_mode))
        )
    finally:
        os.umask(old)
    assert modes == [0o600]
