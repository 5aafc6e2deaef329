"""Objects of any file system that pyarrow knows: s3, gcs, abfs, hdfs, or a path that all processes see.

A store of objects (s3, gcs, abfs) shows an upload when it is complete; anywhere else the bytes go to a temporary name
and are renamed. On a path `sync` also forces them to disk; the other kinds always have them safe when `put` returns.

What a failure means, and whether it is an outage, is in failures.py. S3 does not say why it refuses a HEAD, which is
how reading begins; then the folder is listed, because that is refused for the same reason and in words.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from optimizer.errors import InvalidRequest
from runtime.machine.cache import BoundedCache
from runtime.store.failures import BODILESS, explained
from runtime.store.objects import shown

OBJECT_STORES = ("s3", "gcs", "abfs")
_SCHEME = re.compile(r"[a-z][a-z0-9+]*:(?!//)")
DELAYED = "allow_delayed_open"
KEPT_OPEN = 1024
"""Objects whose length is remembered. An open object of a store of objects is no more than that."""


class ArrowObjects:
    """Names are relative paths with forward slashes. May be used by several threads."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._fs, self._root = _resolve(uri)
        self._whole = self._fs.type_name in OBJECT_STORES
        self._local = self._fs.type_name == "local"
        # Opening asks how long an object is, which costs as much as reading a part of it; parts come one by one.
        self._opened: BoundedCache[str, Any] = BoundedCache(KEPT_OPEN)

    def put(self, name: str, data: Any, *, sync: bool = True) -> int:
        path = self._path(name)
        try:
            self._put(name, path, data, sync)
        except FileNotFoundError as failure:  # there can be no such folder
            raise explained(self.uri, name, failure) from failure
        return memoryview(data).nbytes

    def _put(self, name: str, path: str, data: Any, sync: bool) -> None:
        with self._reaching(name):
            if self._whole:
                self._write(path, data, sync)
            else:
                folder, _, last = path.rpartition("/")
                temporary = f"{folder}/.{last}.{uuid.uuid4().hex[:8]}.tmp"
                self._write(temporary, data, sync)
                self._rename(temporary, path, sync)

    def get(self, name: str) -> bytes | None:
        try:
            with self._reaching(name), self._fs.open_input_stream(self._path(name)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def read(self, name: str, offset: int, length: int) -> bytes:
        with self._reaching(name):
            if not self._whole:
                with self._fs.open_input_file(self._path(name)) as file:
                    return _part(file, offset, length)
            known = self._opened.get(name)
            if known is not None:
                with suppress(OSError):  # it may be gone, or only not answer: opening it again tells which
                    return _part(known, offset, length)
            return _part(self._opened.put(name, self._fs.open_input_file(self._path(name))), offset, length)

    def path(self, name: str) -> Path | None:
        return Path(self._path(name)) if self._local else None

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError), self._reaching(name):
            self._fs.delete_file(self._path(name))

    def delete_folder(self, name: str) -> None:
        with suppress(FileNotFoundError), self._reaching(name):
            self._fs.delete_dir(self._path(name))

    def list(self, folder: str = "") -> dict[str, int]:
        start = self._path(folder) if folder else self._root
        with self._reaching(folder):
            objects = self._fs.get_file_info(fs.FileSelector(start, recursive=True, allow_not_found=True))
        return {i.path[len(self._root) + 1 :]: i.size for i in objects if i.type == fs.FileType.File}

    # -- inside ---------------------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _write(self, path: str, data: Any, sync: bool) -> None:
        try:
            out = self._fs.open_output_stream(path)
        except FileNotFoundError:  # folders are made when the first object needs them; stores of objects have none
            folder = path.rpartition("/")[0]
            self._fs.create_dir(folder, recursive=True)
            if self._local and sync:
                for parent in Path(folder).parents:
                    if parent.is_relative_to(self._root):  # what is above is not ours, nor perhaps readable
                        _sync(str(parent))
            out = self._fs.open_output_stream(path)
        with out:
            out.write(data)
        if self._local and sync:
            _sync(path)

    def _rename(self, temporary: str, path: str, sync: bool) -> None:
        if self._fs.type_name == "hdfs":  # refuses to replace
            with suppress(FileNotFoundError):
                self._fs.delete_file(path)
        self._fs.move(temporary, path)
        if self._local and sync:
            _sync(path.rpartition("/")[0])

    @contextmanager
    def _reaching(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as failure:
            raise explained(self.uri, name or "its list", self._in_words(failure)) from failure

    def _in_words(self, failure: OSError) -> OSError:
        if BODILESS in str(failure):
            try:
                self._fs.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
            except OSError as wordy:
                return wordy
        return failure


def _resolve(uri: str) -> tuple[Any, str]:
    """(file system, path). A plain path may be relative."""
    if "://" not in uri and (scheme := _SCHEME.match(uri)):
        raise _invalid(uri, f"{scheme[0]} is followed by // in a URI; a path of that name begins with ./")
    try:
        system, path = fs.FileSystem.from_uri(_sparing(uri) if "://" in uri else str(Path(uri).expanduser().resolve()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise _invalid(uri, str(e).replace(uri, shown(uri))) from e
    except OSError as e:
        raise explained(uri, "on opening it", e) from e
    if not path.strip("/"):
        raise _invalid(uri, "it names no bucket or folder")
    return system, path.rstrip("/")


def _invalid(uri: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"the store {shown(uri)!r} is neither a path nor a URI that pyarrow knows: {why}",
        reason="STORE_INVALID",
        hint="for example s3://bucket/folder, hdfs://host/folder, or a path",
    )


def _part(file: Any, offset: int, length: int) -> bytes:
    return bytes(file.read_at(max(0, min(length, file.size() - offset)), offset))


def _sparing(uri: str) -> str:
    """By itself pyarrow puts an object with three requests, so that a missing bucket is noticed before the first byte
    is written. We have all bytes at hand, and one request for up to some megabytes says the same."""
    if not uri.startswith("s3://") or DELAYED in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}{DELAYED}=true"


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
