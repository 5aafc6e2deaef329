"""`python -m tests.cluster.driver FOLDER`: starts Spark while gRPC is busy, and says how that went.

A process of its own with a server, a client and their threads, all of them at work on loopback, as in a platform that
already serves. It starts a SparkExecutor and runs a stage, presses Ctrl-C for its whole process group, runs a stage
again, prints a JSON report as its last line and waits to be killed.
"""

from __future__ import annotations

import json
import operator
import os
import signal
import sys
import threading
from concurrent import futures
from pathlib import Path

import grpc

from runtime.spark.executor import SparkExecutor

CALLERS = 4
PAUSE = threading.Event()
"""Never set: a call is answered after a moment, so that callers wait inside gRPC and leave the processor to Spark."""


def serve() -> tuple[grpc.Server, int]:
    def answer(request: bytes, _: grpc.ServicerContext) -> bytes:
        PAUSE.wait(0.05)
        return request

    echo = grpc.unary_unary_rpc_method_handler(answer)
    server = grpc.server(futures.ThreadPoolExecutor(CALLERS))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Echo", {"Call": echo}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def call_for_ever(port: int, called: threading.Semaphore) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/Echo/Call")
        while True:
            assert call(b"x" * 1000, timeout=60) == b"x" * 1000
            called.release()


def main() -> None:
    folder = Path(sys.argv[1])
    server, port = serve()
    called = threading.Semaphore(0)
    for _ in range(CALLERS):
        threading.Thread(target=call_for_ever, args=(port, called), daemon=True).start()
    for _ in range(CALLERS):
        called.acquire()
    executor = SparkExecutor.start("local[1]", local_dir=folder)
    before = executor.run("before", operator.add, 1, [1, 2, 3])
    interrupted = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    os.killpg(0, signal.SIGINT)
    assert interrupted.wait(60)
    after = executor.run("after", operator.add, 10, [1, 2, 3])
    print(json.dumps({"before": before, "after": after}), flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
