"""Bearer tokens: who may call, with which role, for which tenant.

The token file is TOML. It holds hashes, never tokens, so reading it gives nobody access:

    [[token]]
    name = "nightly-etl"                # for people and the log
    hash = "sha256:9f86d081..."
    role = "write"                      # read, write or admin
    tenant = "a"                        # absent: no tenant, sees everything

    [tenant.a]                          # each absent: the setting max_tenant_..., or max_query_...
    max_queries = 10
    max_streams = 5
    max_subscribers = 100
    max_requests = 50                   # calls a second
    max_query_rows = 100000             # of each of its queries; absent: the setting of the same name
    max_query_bytes = 10000000
    max_query_retained_bytes = 100000000
    max_query_seconds = 2.5
    max_query_state_bytes = 100000000

A token is 32 random bytes. Guessing one is hopeless, so a plain SHA-256 of it is enough: slow hashes protect short
passwords. `ajoin token create` adds an entry; taking an entry out ends its token. The file is looked at for every call
and read again when it has changed; if it is broken then, the last good one stays in force and the log says so.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

from ajoin.platform.budgets import LIMITS
from ajoin.platform.tenancy import NO_QUOTA, Quota, Scope, check_tenant
from optimizer.errors import AJoinError, AlreadyExists, InvalidRequest, NotFound
from runtime.files import write_atomically

log = logging.getLogger("ajoin.tokens")

_HASH = re.compile(r"sha256:[0-9a-f]{64}")

PER_QUERY = frozenset(f"max_query_{name}" for name in LIMITS)


class Role(IntEnum):
    """Each may do what the ones before may."""

    read = 1
    write = 2
    admin = 3


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. Without authentication everybody is an admin without a tenant."""

    name: str = ""
    role: Role = Role.admin
    tenant: str = ""
    quota: Quota = NO_QUOTA

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The content of a token file."""

    callers: Mapping[str, Caller] = field(default_factory=dict)
    """By hash."""

    def find(self, token: str) -> Caller | None:
        return self.callers.get(digest(token))


class TokenFile:
    """Owned by the server's event loop. `quota`: of tenants about which the file says nothing else."""

    def __init__(self, path: Path, quota: Quota = NO_QUOTA) -> None:
        self._path = path
        self._quota = quota
        self._seen = self._stamp()
        self._tokens = read_tokens(path, quota)

    def find(self, token: str) -> Caller | None:
        self._refresh()
        return self._tokens.find(token)

    def _refresh(self) -> None:
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._tokens = read_tokens(self._path, self._quota)
            log.info("read the token file again: %d tokens", len(self._tokens.callers))
        except AJoinError as wrong:
            log.error("the changed token file is not used: %s", wrong)

    def _stamp(self) -> tuple[int, ...]:
        try:
            stat = self._path.stat()
        except OSError:
            return ()
        return (stat.st_mtime_ns, stat.st_size, stat.st_ino)


def digest(token: str) -> str:
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


def read_tokens(path: Path, default: Quota = NO_QUOTA) -> Tokens:
    document = _load(path)
    for key in document.keys() - {"token", "tenant"}:
        raise _wrong(path, f"unknown key {key!r}")
    tenants = {name: _quota(path, name, values, default) for name, values in _table(path, document, "tenant").items()}
    callers: dict[str, Caller] = {}
    for number, entry in enumerate(_entries(path, document), 1):
        caller = _caller(path, number, entry)
        quota = tenants.get(caller.tenant, default) if caller.tenant else NO_QUOTA
        if entry["hash"] in callers:
            raise _wrong(path, f"token {number} has the hash of another one")
        callers[entry["hash"]] = Caller(caller.name, caller.role, caller.tenant, quota)
    return Tokens(callers)


def create_token(path: Path, name: str, role: Role, tenant: str = "") -> str:
    """Append an entry and return the new token, which is stored nowhere."""
    if tenant:
        check_tenant(tenant)
    if role is Role.admin and tenant:
        raise InvalidRequest(
            "an admin has no tenant", reason="ADMIN_WITH_TENANT", hint="use the role write, or leave the tenant out"
        )
    known = read_tokens(path).callers.values() if path.exists() else ()
    if name in {caller.name for caller in known}:
        raise AlreadyExists(f"{path} has a token named {name!r}", reason="TOKEN_EXISTS", hint="choose another name")
    token = "ajoin_" + secrets.token_urlsafe(32)
    values = {"name": name, "hash": digest(token), "role": role.name} | ({"tenant": tenant} if tenant else {})
    block = "[[token]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    before = path.read_text(encoding="utf-8") + "\n" if path.exists() else ""
    write_atomically(path, (before + block).encode(), sync=True, several_writers=True, mode=0o600)
    read_tokens(path)
    return token


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFound(
            f"there is no token file {path}", reason="CONFIG_NOT_FOUND", hint="make one with `ajoin token create`"
        ) from None
    except OSError as failure:
        raise _wrong(path, failure.strerror or str(failure)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise _wrong(path, f"not valid TOML: {failure}") from None


def _entries(path: Path, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries = document.get("token", [])
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise _wrong(path, "'token' is no list of tables; begin each entry with [[token]]")
    return entries


def _table(path: Path, document: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, dict):
        raise _wrong(path, f"{key!r} is no table")
    return table


def _quota(path: Path, name: str, values: Any, default: Quota) -> Quota:
    known = {f"max_{f.name}": f.name for f in fields(Quota)}
    if not isinstance(values, dict) or values.keys() - known.keys():
        raise _wrong(path, f"tenant {name!r} may have only {', '.join(known)}")
    for key, most in values.items():
        if key in PER_QUERY:
            kinds: Any = int | float if key == "max_query_seconds" else int
            if not isinstance(most, kinds) or isinstance(most, bool) or not (0 < most < float("inf")):
                raise _wrong(path, f"{key} of tenant {name!r} is not a number above 0")
        elif not isinstance(most, int) or isinstance(most, bool) or most < 0:
            raise _wrong(path, f"{key} of tenant {name!r} is not a whole number, 0 or more")
    return replace(default, **{known[key]: most for key, most in values.items()})


def _caller(path: Path, number: int, entry: Mapping[str, Any]) -> Caller:
    texts = {key: entry.get(key, "") for key in ("name", "hash", "role", "tenant")}
    if entry.keys() - texts.keys() or not all(isinstance(v, str) for v in texts.values()):
        raise _wrong(path, f"token {number} may have only name, hash, role and tenant, all texts")
    if not _HASH.fullmatch(texts["hash"]):
        raise _wrong(path, f"token {number} has no hash of the form sha256:<64 hexadecimal digits>")
    if texts["role"] not in Role.__members__:
        raise _wrong(path, f"token {number} has the role {texts['role']!r}; roles are {', '.join(Role.__members__)}")
    if texts["tenant"]:
        check_tenant(texts["tenant"])
        if texts["role"] == Role.admin.name:
            raise _wrong(path, f"token {number} is an admin with a tenant; an admin has none")
    return Caller(texts["name"], Role[texts["role"]], texts["tenant"])


def _wrong(path: Path, why: str) -> InvalidRequest:
    return InvalidRequest(f"the token file {path} is wrong: {why}", reason="CONFIG_TOKENS")
