"""How a client reaches the service: plain or TLS, with a certificate of its own, with a token.

Without `tls_ca` the connection is not encrypted, which is right for 127.0.0.1 and for nothing else. The token then
travels as it is, so give one only together with TLS or on this machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from ajoin.client.addresses import ATTENTIVE, Addresses
from optimizer.errors import InvalidRequest

SYSTEM = "system"

CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", 128 << 20),
    ("grpc.max_send_message_length", 128 << 20),
]


@dataclass(frozen=True, slots=True)
class Connection:
    """PEM files. `tls_ca`: the authority to trust, or 'system'; `cert` and `key`: who we are. The same for all
    addresses."""

    addresses: tuple[str, ...]
    tls_ca: str | Path | None = None
    cert: str | Path | None = None
    key: str | Path | None = None
    token: str | None = None

    def channels(self) -> Addresses:
        return self._open(grpc)

    def aio_channels(self) -> Addresses:
        return self._open(grpc.aio)

    def _open(self, api: Any) -> Addresses:
        """`api`: grpc or grpc.aio, which name their functions alike. No channel connects before its first call."""
        credentials = self._credentials()
        options = CHANNEL_OPTIONS + (ATTENTIVE if len(self.addresses) > 1 else [])
        channels = [
            api.insecure_channel(address, options=options)
            if credentials is None
            else api.secure_channel(address, credentials, options=options)
            for address in self.addresses
        ]
        return Addresses(self.addresses, channels)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with every call."""
        if not self.token:
            return ()
        if not self.token.isascii() or not self.token.isprintable():
            raise InvalidRequest("the token holds characters that no token has", reason="BAD_TOKEN")
        return (("authorization", f"Bearer {self.token}"),)

    def _credentials(self) -> Any:
        if bool(self.cert) != bool(self.key):
            raise InvalidRequest("a client certificate needs its key, and the other way round", reason="CONFIG_TLS")
        if not self.tls_ca:
            if self.cert:
                raise InvalidRequest(
                    "a client certificate is only used with TLS",
                    reason="CONFIG_TLS",
                    hint="give tls_ca: a file with the authority to trust, or 'system'",
                )
            return None
        roots = None if str(self.tls_ca) == SYSTEM else _read("tls_ca", self.tls_ca)
        pair = (_read("key", self.key), _read("cert", self.cert)) if self.cert and self.key else (None, None)
        return grpc.ssl_channel_credentials(roots, *pair)


def _read(what: str, path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as failure:
        raise InvalidRequest(f"cannot read {what} {path}: {failure.strerror or failure}", reason="CONFIG_TLS") from None
