"""How the driver talks to a worker: one request, one answer, as JSON texts over a Unix socket.

Standard output would not do, because the JVMs of Spark and Flink write there. Standard library only: Flink's worker
runs in another environment.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Client
from typing import Any

Request = Mapping[str, Any]
Answer = dict[str, Any]


def serve(operations: Mapping[str, Callable[[Request], Answer]]) -> None:
    """What a worker's main does: answer until the driver hangs up. The socket's address is the first argument."""
    threading.Thread(target=_end_with_driver, args=(os.getppid(),), daemon=True).start()
    with Client(sys.argv[1], family="AF_UNIX") as connection:
        while True:
            try:
                request = json.loads(connection.recv_bytes())
            except EOFError:
                return
            try:
                answer = operations[request["op"]](request)
            except Exception as e:
                traceback.print_exc()
                answer = {"error": f"{type(e).__name__}: {e}"[:2000]}
            connection.send_bytes(json.dumps(answer).encode())


def _end_with_driver(driver: int) -> None:
    """A driver that was killed cannot stop its workers: end this process group (a worker leads its own)
    when it is gone.
    """
    while os.getppid() == driver:
        time.sleep(1.0)
    os.killpg(os.getpgid(0), signal.SIGKILL)
