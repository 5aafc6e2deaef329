"""What protects the service: TLS, client certificates, tokens; and where it may listen without.

On a loopback address everything is optional: whoever can reach it runs on this machine. Elsewhere the service refuses
to listen without TLS, and without a way to tell callers apart (tokens, or client certificates), unless it is told to
be insecure. That is decided here, where the port is opened, so no caller can forget it.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from ajoin.config import Settings
from ajoin.platform.tenancy import Quota
from ajoin.service.tokens import TokenFile
from optimizer.errors import FailedPrecondition


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM texts. `client_ca`: callers must show a certificate that it signed."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None

    def credentials(self) -> Any:
        return grpc.ssl_server_credentials(
            [(self.key, self.certificate)],
            root_certificates=self.client_ca,
            require_client_auth=self.client_ca is not None,
        )


@dataclass(frozen=True, slots=True)
class Security:
    tls: Tls | None = None
    tokens: TokenFile | None = None
    insecure: bool = False

    def check(self, address: str) -> None:
        """Raise if the service must not listen there like this."""
        if self.insecure or is_loopback(address):
            return
        if self.tls is None:
            raise FailedPrecondition(
                f"{address} can be reached from other machines, and there is no TLS",
                reason="CONFIG_INSECURE",
                hint="set tls_cert and tls_key, listen on 127.0.0.1, or (letting anybody listen in) --insecure",
            )
        if self.tokens is None and self.tls.client_ca is None:
            raise FailedPrecondition(
                f"{address} can be reached from other machines, and nobody would have to say who they are",
                reason="CONFIG_INSECURE",
                hint="set token_file or tls_client_ca, listen on 127.0.0.1, or (letting anybody in) --insecure",
            )


OPEN = Security()
"""No TLS, no tokens: for loopback."""


def is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def from_settings(settings: Settings) -> Security:
    """Read certificates and tokens, and check that the configured address may be used with them."""
    if bool(settings.tls_cert) != bool(settings.tls_key) or (settings.tls_client_ca and not settings.tls_cert):
        raise FailedPrecondition(
            "TLS is half configured",
            reason="CONFIG_TLS",
            hint="tls_cert and tls_key belong together, and tls_client_ca needs both",
        )
    tls = None
    if settings.tls_cert:
        ca = _read("tls_client_ca", settings.tls_client_ca) if settings.tls_client_ca else None
        tls = Tls(_read("tls_cert", settings.tls_cert), _read("tls_key", settings.tls_key), ca)
    tokens = None
    if settings.token_file:
        budget = settings.tenant_budget
        quota = Quota(
            settings.max_tenant_queries or None,
            settings.max_tenant_streams or None,
            settings.max_tenant_subscribers or None,
            settings.max_tenant_requests or None,
            budget.rows,
            budget.bytes,
            budget.retained_bytes,
            budget.seconds,
            budget.state_bytes,
        )
        tokens = TokenFile(Path(settings.token_file), quota)
    security = Security(tls, tokens, settings.insecure)
    security.check(settings.listen)
    return security


def _read(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as failure:
        raise FailedPrecondition(
            f"cannot read {setting} {path}: {failure.strerror or failure}", reason="CONFIG_TLS"
        ) from None
