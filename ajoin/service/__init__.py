"""The gRPC service: `ajoin.v1` in front of a Platform.

server.py         life of the server: start, health, reflection, graceful end
listen.py         opening the port
standby.py        what one answers that stands by for another
security.py       TLS, and where the service may listen without
limits.py         what one connection may do
access.py         who may call what
quotas.py         how many calls and subscriptions a tenant may have
boundary.py       the one place where exceptions become statuses
idempotency.py    repeated calls get the first answer
change_signal.py  how a coroutine waits for the engine thread
streams.py, queries.py, results.py, plan.py, admin.py   one servicer each; they convert, ask the platform,
                  convert back, and show a caller only what its tenant may see
"""

from ajoin.service.security import Security, Tls
from ajoin.service.server import DEFAULT_ADDRESS, Server, ServerThread, serve

__all__ = ["DEFAULT_ADDRESS", "Security", "Server", "ServerThread", "Tls", "serve"]
