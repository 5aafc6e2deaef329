"""Which TCP ports a process and its descendants listen on, read from /proc."""

from __future__ import annotations

import ipaddress
import os
import struct
from collections.abc import Iterator
from pathlib import Path

LISTEN = "0A"
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def tree(root: int) -> list[int]:
    """The process and everything it started, directly or not."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def listening(pids: list[int]) -> dict[int, Address]:
    """Address by port."""
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    ports = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == LISTEN and rest[5] in inodes:
                address, port = local.split(":")
                ports[int(port, 16)] = _address(address)
    return ports


def is_local(address: Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _sockets(pid: int) -> Iterator[str]:
    try:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(fd)
            except FileNotFoundError:
                continue
            if target.startswith("socket:["):
                yield target[len("socket:[") : -1]
    except (FileNotFoundError, PermissionError):
        return


def _address(text: str) -> Address:
    """The kernel writes words of 32 bits, each in the machine's byte order."""
    words = [int(text[i : i + 8], 16) for i in range(0, len(text), 8)]
    return ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
