"""What one connection may do to the service: the bounds of the wire.

gRPC's core keeps them, on its own threads, before a call reaches Python: a message or metadata beyond its size ends the
call, a stream beyond the number waits at the client, a peer that sends no proper beginning within
`handshake_timeout` is cut off, and one that stops answering pings is found by `keepalive_interval` and
`keepalive_timeout` (a client that is alive and merely does not read answers them; `results.py` deals with those). Bytes
that are no HTTP/2 end their own connection.
"""

from __future__ import annotations

from dataclasses import dataclass

from ajoin.config import Settings

LARGEST_RESPONSE = 64 << 20
LEAST_PING_MS = 2_000
"""Between two pings of a client; one that asks more often is hung up on."""


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Times are seconds, 0: no bound. Streams are calls that are open on one connection at the same time.

    `subscriber_bytes`: what all subscribers together hold (in_flight.py). `answer_bytes`: answers that are kept for
    repeated calls (idempotency.py).
    """

    message_bytes: int = 32 << 20
    metadata_bytes: int = 16 << 10
    connection_streams: int = 1000
    connections: int = 10_000
    subscribers: int = 5_000
    subscriber_bytes: int = 1 << 30
    answer_bytes: int = 64 << 20
    keepalive_interval: float = 60.0
    keepalive_timeout: float = 20.0
    handshake_timeout: float = 10.0
    connection_idle: float = 1800.0
    connection_age: float = 0.0

    @property
    def options(self) -> list[tuple[str, int]]:
        times = {
            "grpc.keepalive_time_ms": self.keepalive_interval,
            "grpc.keepalive_timeout_ms": self.keepalive_timeout,
            "grpc.server_handshake_timeout_ms": self.handshake_timeout,
            "grpc.max_connection_idle_ms": self.connection_idle,
            "grpc.max_connection_age_ms": self.connection_age,
        }
        return [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", self.message_bytes),
            ("grpc.max_send_message_length", LARGEST_RESPONSE),
            ("grpc.max_metadata_size", self.metadata_bytes),
            ("grpc.absolute_max_metadata_size", self.metadata_bytes),
            ("grpc.max_concurrent_streams", self.connection_streams),
            ("grpc.max_allowed_incoming_connections", self.connections),
            # All subscribers may come back at once after a restart: so many calls may wait to be looked at.
            ("grpc.server.max_pending_requests", self.subscribers),
            ("grpc.server.max_pending_requests_hard_limit", 2 * self.subscribers),
            # Clients that know several addresses ask this often whether this one is still there.
            ("grpc.http2.min_ping_interval_without_data_ms", LEAST_PING_MS),
            *((name, round(1000 * seconds)) for name, seconds in times.items() if seconds),
        ]


def from_settings(settings: Settings) -> ServiceLimits:
    return ServiceLimits(
        settings.max_message_bytes,
        settings.max_metadata_bytes,
        settings.max_connection_streams,
        settings.max_connections,
        settings.max_subscribers,
        settings.max_subscriber_bytes,
        settings.max_answer_bytes,
        settings.keepalive_interval,
        settings.keepalive_timeout,
        settings.handshake_timeout,
        settings.connection_idle,
        settings.connection_age,
    )
