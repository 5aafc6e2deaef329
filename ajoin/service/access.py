"""Who may call what.

`Access.admit` runs before every call of our services: it finds the caller by its bearer token and compares its role
with the least one the method asks for. A method that is not in the table asks for the highest role, so a new one
cannot be open by mistake. Methods that show or change what belongs to all tenants (changelogs of the plan, deleting a
stream or moving it back) also refuse callers that have one. Health and reflection answer every caller: they say that
the service is there and what it speaks.

The caller travels to the servicers in a context variable, because gRPC gives a servicer no other place for it; each
call runs in a task, and so in a context, of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar

from ajoin.service.tokens import Caller, Role, TokenFile
from optimizer.errors import PermissionDenied, Unauthenticated

LEAST: dict[str, Role] = {
    "StreamService/CreateStream": Role.write,
    "StreamService/ListStreams": Role.read,
    "StreamService/GetStream": Role.read,
    "StreamService/DeleteStream": Role.write,
    "StreamService/ResetWatermark": Role.write,
    "StreamService/RestartStream": Role.write,
    "StreamService/ListDeadLetters": Role.read,
    "QueryService/CreateQuery": Role.write,
    "QueryService/CreateQueries": Role.write,
    "QueryService/DeleteQuery": Role.write,
    "QueryService/SuspendQuery": Role.write,
    "QueryService/ResumeQuery": Role.write,
    "QueryService/GetQuery": Role.read,
    "QueryService/ListQueries": Role.read,
    "ResultService/Subscribe": Role.read,
    "PlanService/Explain": Role.read,
    "PlanService/WatchPlan": Role.read,
    "PlanService/Optimize": Role.admin,
    "PlanService/ForceOrder": Role.admin,
    "PlanService/ForceGroups": Role.admin,
    "PlanService/Scale": Role.admin,
    "PlanService/SplitPartition": Role.admin,
    "PlanService/Unpin": Role.admin,
    "AdminService/GetStatus": Role.read,
    "AdminService/GetStatistics": Role.read,
    "AdminService/ListSettings": Role.admin,
    "AdminService/SetSetting": Role.admin,
}

NOT_FOR_TENANTS = {
    "StreamService/DeleteStream",
    "StreamService/ResetWatermark",
    "StreamService/RestartStream",
    "PlanService/WatchPlan",
}

_CALLER: ContextVar[Caller] = ContextVar("caller")


def caller() -> Caller:
    """Who made the call that is being answered."""
    return _CALLER.get()


class Access:
    """`tokens` None: callers are not asked who they are."""

    def __init__(self, tokens: TokenFile | None = None) -> None:
        self._tokens = tokens

    def admit(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> Caller:
        """Remember who calls, or raise; `method` is the full gRPC name."""
        name = method.removeprefix("/ajoin.v1.")
        who = Caller() if self._tokens is None else self._known(self._tokens, metadata)
        least = LEAST.get(name, Role.admin)
        if who.role < least:
            raise PermissionDenied(
                f"{name} needs the role {least.name}; this token has {who.role.name}",
                hint="ask an operator for another token",
            )
        if who.tenant and name in NOT_FOR_TENANTS:
            raise PermissionDenied(f"{name} concerns all tenants; this token belongs to tenant {who.tenant!r}")
        _CALLER.set(who)
        return who

    def _known(self, tokens: TokenFile, metadata: Iterable[tuple[str, str | bytes]]) -> Caller:
        given = [value for key, value in metadata if key == "authorization"]
        if not given:
            raise Unauthenticated("this platform asks for a token", hint="give one: Client(token=...) or AJOIN_TOKEN")
        scheme, _, token = str(given[0]).partition(" ")
        known = tokens.find(token.strip()) if scheme.lower() == "bearer" else None
        if known is None:
            raise Unauthenticated("the token is not known", hint="it may have been taken back; ask an operator")
        return known
