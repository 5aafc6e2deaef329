"""What a store that fails is saying: one stable reason, and what to do about it.

    STORE_INVALID       no platform can ever use this URI: it is corrected, not waited for
    STORE_REFUSED       the store answers and says no: bucket, key, secret, rights, region
    STORE_CLOCK         the store says no because the clock of this machine and its own differ too much
    STORE_FULL          it lets nothing more in
    STORE_UNAVAILABLE   it does not answer, or not now

All but the first are outages. They are waited out by what runs already, because credentials, clocks and room come back;
who opens a store is told at once. pyarrow has no errors of its own for any of this: the code of S3 and the one of the
network stand in its text, and a text that is not known here is STORE_UNAVAILABLE with everything that pyarrow said.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from optimizer.errors import AJoinError, InvalidRequest, Unavailable
from runtime.execution.outage import NO_ROOM
from runtime.store.objects import has_key, shown

KEPT = "nothing is lost, and a platform that runs goes on by itself"
BODILESS = "No response body"
"""The answer to a HEAD has no text, so it does not say why; whoever can should ask in another way."""


class Meaning(NamedTuple):
    """`marks`: one of these is in what pyarrow says. `said` follows "the store URI"."""

    marks: tuple[str, ...]
    reason: str
    said: str
    hint: str


RIGHTS = "the platform must be allowed to get, put, list and delete objects below this folder"
MEANINGS = (
    Meaning(
        ("InvalidBucketName",),
        "STORE_INVALID",
        "has a bucket name that no bucket can have",
        "3 to 63 lower-case letters, digits and hyphens: s3://bucket/folder",
    ),
    Meaning(
        ("Unable to load libhdfs", "Unable to load libjvm"),
        "STORE_INVALID",
        "needs Hadoop's native library, which was not found",
        "on the driver and all executors: JAVA_HOME, HADOOP_HOME with lib/native/libhdfs.so, and CLASSPATH as printed "
        "by `hadoop classpath --glob`",
    ),
    Meaning(
        ("Error NO_SUCH_BUCKET", "NoSuchBucket"), "STORE_REFUSED", "has no such bucket", "create it, or correct --store"
    ),
    Meaning(
        ("RequestTimeTooSkewed", "REQUEST_TIME_TOO_SKEWED", "REQUEST_EXPIRED"),
        "STORE_CLOCK",
        "refuses requests because this machine's clock is wrong",
        "set the clocks of this machine and of the store (NTP)",
    ),
    Meaning(
        ("INVALID_ACCESS_KEY_ID", "INVALID_CLIENT_TOKEN", "InvalidTokenId", "ExpiredToken", "EXPIRED_TOKEN"),
        "STORE_REFUSED",
        "does not know the access key",
        "correct it, or renew it if it was a temporary one",
    ),
    Meaning(
        ("SIGNATURE_DOES_NOT_MATCH",),
        "STORE_REFUSED",
        "does not accept the secret of the access key",
        "correct it; in a URI, + and / of a secret are written %2B and %2F",
    ),
    Meaning(
        ("AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraint", "HTTP status 301"),
        "STORE_REFUSED",
        "is in another region",
        "say which: s3://bucket/folder?region=...",
    ),
    Meaning(("ACCESS_DENIED", "MissingContentLength"), "STORE_REFUSED", "does not allow it", RIGHTS),
    Meaning(
        ("HTTP status 507", "StorageFull", "QuotaExceeded", "No space left on device", "Disk quota exceeded"),
        "STORE_FULL",
        "is full",
        "make room in it",
    ),
    Meaning(
        ("SLOW_DOWN", "SlowDown", "THROTTLING", "TooManyRequests"),
        "STORE_UNAVAILABLE",
        "asks for fewer requests",
        "longer epochs and fewer source partitions ask less of it",
    ),
    Meaning(
        ("curlCode: 6,",),
        "STORE_UNAVAILABLE",
        "has a host name that is not known",
        "check the name, also in endpoint_override, and this machine's DNS",
    ),
    Meaning(
        ("curlCode: 7,",),
        "STORE_UNAVAILABLE",
        "does not answer: nobody listens there",
        "check host and port, also in endpoint_override, and that the store runs",
    ),
    Meaning(
        ("curlCode: 28,",),
        "STORE_UNAVAILABLE",
        "does not answer in time",
        "check host and port, also in endpoint_override, and what is between here and there",
    ),
    Meaning(
        ("curlCode: 35,",),
        "STORE_UNAVAILABLE",
        "does not speak TLS at this address",
        "for a server without TLS say scheme=http in the URI",
    ),
    Meaning(
        ("curlCode: 60,", "curlCode: 77,"),
        "STORE_UNAVAILABLE",
        "shows a certificate that this machine does not trust",
        "make its authority known to this machine",
    ),
    Meaning(
        ("curlCode: 52,", "curlCode: 56,", "HTTP request to an HTTPS server"),
        "STORE_UNAVAILABLE",
        "does not answer as a store does",
        "check host, port and scheme: a server with TLS needs scheme=https",
    ),
)
CREDENTIALS = (
    "the URI has no key, so it is looked for in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in ~/.aws, and in the "
    "role of the machine"
)


def explained(uri: str, what: str, failure: OSError) -> AJoinError:
    """`what`: the object it was about, or another word for the place."""
    reason, said, hint = _meaning(uri, failure)
    message = f"the store {shown(uri)} {said} ({what}): {failure}"
    if reason == "STORE_INVALID":
        return InvalidRequest(message, reason=reason, hint=hint)
    return Unavailable(message, reason=reason, hint=f"{hint}; {KEPT}" if hint else KEPT)


def _meaning(uri: str, failure: OSError) -> tuple[str, str, str]:
    text = str(failure)
    for meaning in MEANINGS:
        if any(mark in text for mark in meaning.marks):
            signed = not uri.startswith("s3://") or has_key(uri)
            asks_for_key = meaning.reason == "STORE_REFUSED" and meaning.hint == RIGHTS and not signed
            return meaning.reason, meaning.said, f"{meaning.hint}; {CREDENTIALS}" if asks_for_key else meaning.hint
    if isinstance(failure, PermissionError) or failure.errno == errno.EROFS:
        return "STORE_REFUSED", "does not allow it", "let the platform's user read and write there"
    if failure.errno in NO_ROOM:
        return "STORE_FULL", "is full", "make room in it"
    return "STORE_UNAVAILABLE", "does not do its work", ""
