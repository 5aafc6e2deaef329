"""The gRPC service: `ajoin.v1` in front of a Platform.

server.py       life of the server: start, health, reflection, graceful end boundary.py     the one place
where exceptions become statuses idempotency.py  repeated calls get the first answer pulse.py        how a
coroutine waits for the engine thread streams.py, queries.py, results.py, plan.py, admin.py   one servicer
each; they convert, ask the platform, convert back
"""

from ajoin.service.server import DEFAULT_ADDRESS, Server, ServerThread, serve

__all__ = ["DEFAULT_ADDRESS", "Server", "ServerThread", "serve"]
