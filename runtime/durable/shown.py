"""A tier's URI as people may see it: pyarrow takes credentials inside the URI, and messages, logs and callers on other
machines must not get them."""

from __future__ import annotations

import re

_CREDENTIALS = re.compile(r"(?<=://)[^/?#]*@")


def shown(uri: str) -> str:
    """The same place without user, password and options (which may name a secret, too)."""
    return _CREDENTIALS.sub("", uri).partition("?")[0]
