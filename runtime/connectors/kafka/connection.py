"""How to reach a Kafka cluster: its options, the clients a process keeps, and what its failures mean.

A `Connection` is a small picklable value. It travels to the Spark tasks inside each read, so whatever a task
needs to log in must be in it; passwords are therefore best given as `env:AJOIN_SECRET_<NAME>`, which is looked
up on the driver and never stored. Only variables with that prefix can be named: a stream's options come from
users, and no user may send the server's other variables to a broker of their choice.

Clients cost a connection, a metadata request and a thread each. A process therefore keeps the idle ones and
lends them out (`borrow`); two borrowers never share one, and one that failed is thrown away, because its
state is unknown. The key holds the process id: a forked worker must not talk through its parent's sockets.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from optimizer.errors import AJoinError, FailedPrecondition, Unavailable
from runtime.connectors.options import Option, Root, Settings, bad_option, nearest

SECRET_PREFIX = "AJOIN_SECRET_"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SECURITY = {
    "ssl.cafile": "path",
    "ssl.certfile": "path",
    "ssl.keyfile": "path",
    "ssl.crlfile": "path",
    "ssl.password": "secret",
    "ssl.ciphers": "text",
    "ssl.check_hostname": "flag",
    "sasl.mechanism": "text",
    "sasl.plain_username": "secret",
    "sasl.plain_password": "secret",
    "sasl.kerberos_service_name": "text",
    "sasl.kerberos_domain_name": "text",
}
"""kafka-python's own names, with a dot after the family: ssl.cafile is its ssl_cafile."""

CONNECTION_OPTIONS = (
    Option("bootstrap", "host:port of one or more brokers, with commas", required=True),
    Option("security.protocol", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL (default PLAINTEXT)"),
    Option("ssl.", "TLS settings, e.g. ssl.cafile; paths must exist on every machine that runs tasks"),
    Option("sasl.", "login settings, e.g. sasl.mechanism; a password may be env:AJOIN_SECRET_<NAME>"),
)

_KEPT = 8
"""Idle clients a process keeps; more are closed, the longest unused first."""


def library() -> Any:
    """kafka-python, loaded on first use: most processes that know the registry never need it.

    It reports every failed attempt to connect as an error of its own; the connectors say once what matters.
    """
    import kafka  # type: ignore[import-untyped]

    logger = logging.getLogger("kafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
    return kafka


def can_check_crcs() -> bool:
    """Only with the C package crc32c: in pure Python a check runs at 6 MB/s, more than all the rest costs.

    TCP has checked the bytes and the broker checked the batch when it was written.
    """
    return find_spec("crc32c") is not None


@dataclass(frozen=True, slots=True)
class Connection:
    """`security` in kafka-python's names and types; it may hold passwords and is never printed."""

    bootstrap: tuple[str, ...]
    security: tuple[tuple[str, Any], ...] = field(default=(), repr=False)

    @property
    def arguments(self) -> dict[str, Any]:
        return {"bootstrap_servers": list(self.bootstrap), **dict(self.security)}

    def __str__(self) -> str:
        return ",".join(self.bootstrap)


def parse_connection(s: Settings, options: Mapping[str, str], allowed_roots: Sequence[Root]) -> Connection:
    servers = tuple(part.strip() for part in s.text("bootstrap", "").split(",") if part.strip())
    if not servers or not all(re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/]+):\d{1,5}", server) for server in servers):
        s.refuse("bootstrap", "host:port, several with commas")
    security: dict[str, Any] = {}
    if s.given("security.protocol"):
        protocol = s.text("security.protocol", "").upper()
        if protocol not in PROTOCOLS:
            s.refuse("security.protocol", "one of " + ", ".join(PROTOCOLS))
        security["security_protocol"] = protocol
    for name in sorted(options):
        if not name.startswith(("ssl.", "sasl.")):
            continue
        if name not in SECURITY:
            raise bad_option(f"connector {s.kind} has no option {name!r}", nearest(name, SECURITY))
        security[name.replace(".", "_", 1)] = _security_value(s, name, SECURITY[name], allowed_roots)
    return Connection(servers, tuple(sorted(security.items())))


def _security_value(s: Settings, name: str, type: str, allowed_roots: Sequence[Root]) -> Any:
    if type == "path":
        return str(s.path(name, allowed_roots))
    if type == "flag":
        return s.choice(name, "true", ("true", "false")) == "true"
    value = s.text(name, "")
    if type != "secret" or not value.startswith("env:"):
        return value
    variable = value.removeprefix("env:")
    if not variable.startswith(SECRET_PREFIX):
        s.refuse(name, f"the value itself, or env:{SECRET_PREFIX}<NAME>")
    if variable not in os.environ:
        raise bad_option(
            f"option {name} of connector {s.kind} names the environment variable {variable}, which is not set",
            "set it where the platform is started",
        )
    return os.environ[variable]


# -- what a failure means ------------------------------------------------------------------------------------


def failures() -> tuple[type[Exception], ...]:
    """What the client library raises when something is wrong outside this process."""
    return (library().errors.KafkaError, OSError)


def explain(failure: BaseException, connection: Connection) -> AJoinError:
    """Refused logins and missing rights stay refused; everything else is an outage that may pass."""
    errors = library().errors
    lasting = {
        errors.UnsupportedCodecError: "install the topic's compression codec for Python (python-snappy, lz4 or "
        "zstandard) wherever tasks run, or use gzip",
        errors.UnsupportedVersionError: "this needs a newer broker",
        errors.AuthorizationError: "give this login the rights it needs",
        errors.SaslAuthenticationFailedError: "check the sasl. options",
        errors.UnsupportedSaslMechanismError: "check the option sasl.mechanism",
        errors.KafkaConfigurationError: "check the options",
    }
    for kind, hint in lasting.items():
        if isinstance(failure, kind):
            message = f"Kafka at {connection} cannot be used: {failure}"
            return FailedPrecondition(message, reason="KAFKA_REFUSED", hint=hint)
    return Unavailable(
        f"Kafka at {connection} does not answer: {str(failure) or type(failure).__name__}",
        reason="KAFKA_UNAVAILABLE",
        hint="check that the brokers run and that the option bootstrap names them"
        + (", and the ssl. and sasl. options: a refused login looks like no answer" if connection.security else ""),
    )


# -- clients -------------------------------------------------------------------------------------------------

_idle: OrderedDict[tuple[int, str, Connection], list[Any]] = OrderedDict()
_lock = threading.Lock()


@contextmanager
def borrow(kind: str, connection: Connection, make: Callable[[], Any]) -> Iterator[Any]:
    """An idle client of this kind, or a new one. It goes back only if the block did not raise."""
    key = (os.getpid(), kind, connection)
    with _lock:
        waiting = _idle.get(key)
        client = waiting.pop() if waiting else None
    client = client or make()
    try:
        yield client
    except BaseException:
        _discard(client)
        raise
    with _lock:
        _idle.setdefault(key, []).append(client)
        _idle.move_to_end(key)
        surplus = _take_surplus()
    for old in surplus:
        _discard(old)


def close_idle() -> None:
    """Close every idle client of this process."""
    with _lock:
        mine = [c for (pid, _, _), clients in _idle.items() if pid == os.getpid() for c in clients]
        _idle.clear()
    for client in mine:
        _discard(client)


def _take_surplus() -> list[Any]:
    surplus: list[Any] = []
    while sum(map(len, _idle.values())) > _KEPT:
        key, clients = next((k, c) for k, c in _idle.items() if c)
        surplus.append(clients.pop(0))
        if not clients:
            del _idle[key]
    return surplus


def _discard(client: Any) -> None:
    try:
        client.close()
    except Exception as why:  # it is being thrown away; whatever broke it was reported already
        logging.getLogger(__name__).debug("closing a Kafka client: %s", why)


def make_client(kind: str, **arguments: Any) -> Any:
    """A client of the library, by the name of its class. If it finds no brokers, its constructor raises and leaves a
    thread and sockets behind, once for every attempt; so what it is made around is remembered, and closed then."""
    cls = getattr(library(), kind)
    inner: list[Any] = []

    def remembered(**config: Any) -> Any:
        inner.append(cls.DEFAULT_CONFIG["kafka_client"](**config))
        return inner[-1]

    try:
        return cls(kafka_client=remembered, **arguments)
    except BaseException:
        for client in inner:
            _discard(client)
        raise


@contextmanager
def admin(connection: Connection, timeout_ms: int) -> Iterator[Any]:
    """Asks about topics and offsets; every question is answered by the cluster, not from a cache."""

    def make() -> Any:
        return make_client(
            "KafkaAdminClient",
            **connection.arguments,
            bootstrap_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
            reconnect_backoff_max_ms=1000,
        )

    with borrow(f"admin {timeout_ms}", connection, make) as client:
        yield client


def new_consumer(connection: Connection, timeout_ms: int) -> Any:
    return make_client(
        "KafkaConsumer",
        **connection.arguments,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        check_crcs=can_check_crcs(),
        allow_auto_create_topics=False,
        fetch_max_wait_ms=20,
        max_partition_fetch_bytes=4 << 20,
        bootstrap_timeout_ms=timeout_ms,
        reconnect_backoff_max_ms=1000,
        metrics_enabled=False,
    )


@contextmanager
def consumer(connection: Connection, timeout_ms: int) -> Iterator[Any]:
    """Reads what is committed, without a group: offsets belong to the epoch log.

    Only data known to be there is asked for, so a fetch at the end of a partition need not linger: it would
    hold up the next read that borrows this client.
    """

    with borrow("consumer", connection, lambda: new_consumer(connection, timeout_ms)) as client:
        yield client
