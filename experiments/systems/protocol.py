"""How the driver talks to a worker: one request, one answer, as JSON texts over a Unix socket.

Standard output would not do, because the JVMs of Spark and Flink write there. Standard library only: Flink's worker
runs in another environment.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Client
from typing import Any

Request = Mapping[str, Any]
Answer = dict[str, Any]


def serve(operations: Mapping[str, Callable[[Request], Answer]]) -> None:
    """What a worker's main does: answer until the driver hangs up. The socket's address is the first argument."""
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
