"""Opening the port: plain or TLS, and a clear error when somebody else has it."""

from __future__ import annotations

from typing import Any

from ajoin.service.security import Security
from optimizer.errors import FailedPrecondition


def listen(server: Any, address: str, security: Security) -> str:
    """Let the grpc.aio server listen; returns the address (port 0 becomes the port that was chosen)."""
    tls = security.tls
    try:
        port = server.add_insecure_port(address) if tls is None else server.add_secure_port(address, tls.credentials())
    except RuntimeError:
        raise FailedPrecondition(
            f"cannot listen on {address}",
            reason="ADDRESS_IN_USE",
            hint="another program may use the port; choose another address",
        ) from None
    return f"{address.rpartition(':')[0]}:{port}"
