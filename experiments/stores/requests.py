"""How many requests an S3 server got, as it counts them itself, by kind.

MinIO shows its counters to whoever asks if it was started with `PUBLIC` in its environment. It may answer with numbers
that are some seconds old, so a reading counts when it has not changed for a while in which nobody asked for anything.
"""

from __future__ import annotations

import os
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tools import minio

PUBLIC = {"MINIO_PROMETHEUS_AUTH_TYPE": "public"}
COUNTER = re.compile(r'^minio_s3_requests_total\{api="(\w+)"[^}]*\} (\d+)', re.MULTILINE)
STILL = 12.0
"""Seconds. Its counters are gathered every ten."""


@contextmanager
def serving(directory: Path) -> Iterator[minio.MinIO]:
    os.environ.update(PUBLIC)
    directory.mkdir(parents=True)
    with minio.running(directory) as server:
        yield server


def requests(address: str) -> Counter[str]:
    """So far, by kind of request."""
    read = _read(address)
    end = time.monotonic() + STILL
    while time.monotonic() < end:
        time.sleep(0.5)
        if (now := _read(address)) != read:
            read, end = now, time.monotonic() + STILL
    return read


def _read(address: str) -> Counter[str]:
    with urllib.request.urlopen(f"http://{address}/minio/v2/metrics/cluster", timeout=60) as answer:
        text = answer.read().decode()
    return Counter({api: int(number) for api, number in COUNTER.findall(text)})
