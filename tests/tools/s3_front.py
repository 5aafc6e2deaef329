"""In front of the S3 server: hands everything on as it is, but for what it is told to refuse.

For answers that the real server gives only when its clock, its region or its load is wrong. Requests are signed for the
address that the client sees, and the server checks what the client has signed; so `Host` is handed on too.
"""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BODY = "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{}</Code><Message>{}</Message></Error>"


class Front(ThreadingHTTPServer):
    """`refuses`: by method, the status, code and words of the answer; * stands for all methods."""

    daemon_threads = True

    def __init__(self, behind: str, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.behind = behind
        self.refuses: dict[str, tuple[int, str, str]] = {}
        self._spared = 0
        self._lock = threading.Lock()
        self.address = f"127.0.0.1:{self.server_address[1]}"

    def refuse_after(self, method: str, spared: int, answer: tuple[int, str, str]) -> None:
        """So many more requests of this kind are handed on; then all are refused, until `refuses` is cleared."""
        self._spared = spared
        self.refuses[method] = answer

    def refusal(self, method: str) -> tuple[int, str, str] | None:
        answer = self.refuses.get(method) or self.refuses.get("*")
        with self._lock:
            if answer is not None and self._spared > 0:
                self._spared -= 1
                return None
        return answer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Front

    def _answer(self) -> None:
        chunked = self.headers.get("Transfer-Encoding", "").lower() == "chunked"
        body = self._chunks() if chunked else self.rfile.read(int(self.headers.get("Content-Length", 0)))
        refusal = self.server.refusal(self.command)
        if refusal is not None:
            status, code, words = refusal
            self._send(status, {"Content-Type": "application/xml"}, BODY.format(code, words).encode())
            return
        behind = http.client.HTTPConnection(self.server.behind, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
            behind.request(self.command, self.path, iter([body]) if chunked else body, headers, encode_chunked=chunked)
            answer = behind.getresponse()
            kept = {k: v for k, v in answer.getheaders() if k.lower() not in ("connection", "transfer-encoding")}
            self._send(answer.status, kept, answer.read())
        finally:
            behind.close()

    def _chunks(self) -> bytes:
        """A body whose length was not said before."""
        parts: list[bytes] = []
        while length := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(length))
            self.rfile.readline()
        while self.rfile.readline().strip():
            """What follows the last one, up to an empty line, is for nobody."""
        return b"".join(parts)

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@contextmanager
def standing_before(address: str, tls: ssl.SSLContext | None = None) -> Iterator[Front]:
    with Front(address, tls) as front:
        thread = threading.Thread(target=front.serve_forever, daemon=True)
        thread.start()
        try:
            yield front
        finally:
            front.shutdown()
            thread.join()
