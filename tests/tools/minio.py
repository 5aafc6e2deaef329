"""A real S3 server on loopback: MinIO, built once from its source.

    python -m tests.tools.minio --build     # in the foreground
    python -m tests.tools.minio --ahead     # in the background: answers at once

There is no package of it to install, but Go builds it from the module proxy. That takes minutes, so it is done once,
into a cache outside the repository, named after the version; and `make test` begins with it in the background, at the
lowest priority, while the tests that need it come last. Whoever needs the server waits for the build that runs, because
a lock on a file is held meanwhile, and builds by itself only if nobody does. `Unreachable` means that it is not cached
and cannot be built.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import hmac
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pyarrow import fs

from tests.tools.ports import free_port

MODULE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
LEAN = ("-ldflags=-s -w", "-gcflags=all=-N -l")
"""Nobody debugs it, and tests ask little of it: without optimizations it takes a quarter less to build."""
BUILD_S = 1000.0
START_S = 300.0
KEY, SECRET = "ajoin", "only-for-tests"


class Unreachable(Exception):
    """The server is not here and cannot be built; says why."""


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ajoin-tests"


def binary() -> Path:
    """The server's program; built when missing, or when somebody builds it, waited for."""
    wanted = cache() / f"minio-{VERSION}"
    if not wanted.exists():
        with _locked():
            if not wanted.exists():
                _build(wanted)
    return wanted


def build_ahead() -> None:
    """Begin to build, in a process of its own that ends when that is done."""
    if (cache() / f"minio-{VERSION}").exists() or shutil.which("go") is None:
        return
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / "minio-build.log", "ab") as log:
        command = [sys.executable, "-m", "tests.tools.minio", "--build"]
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


@contextmanager
def _locked() -> Iterator[None]:
    """One builder at a time; the lock goes with the process that holds it."""
    cache().mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + BUILD_S
    with open(cache() / "minio.lock", "w") as lock:
        while not _lock(lock):
            if time.monotonic() > deadline:
                raise Unreachable(f"somebody has been building it for {BUILD_S:g} s")
            time.sleep(0.5)
        yield


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _build(wanted: Path) -> None:
    if shutil.which("go") is None:
        raise Unreachable(f"go is not installed, and the server is not in {cache()}")
    with tempfile.TemporaryDirectory(prefix=".building-", dir=cache()) as folder:
        # Two gigabytes of sources and objects that nobody needs afterwards: they go with the folder.
        own = {"GOBIN": folder, "GOPATH": f"{folder}/path", "GOCACHE": f"{folder}/cache", "GOFLAGS": "-modcacherw"}
        command = ["nice", "-n", "19", "go", "install", "-trimpath", *LEAN, f"{MODULE}@{VERSION}"]
        environment = os.environ | own | {"CGO_ENABLED": "0"}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BUILD_S)
        except subprocess.TimeoutExpired:
            raise Unreachable(f"go did not build it in {BUILD_S:g} s") from None
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if not line.startswith("go: downloading")]
            raise Unreachable(f"go could not build it: {' '.join(said)[-500:]}")
        (Path(folder) / "minio").rename(wanted)


class MinIO:
    """Keeps its port and its data over `stop` and `start`. `settings`: more of its environment."""

    def __init__(self, program: Path, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self._program, self._directory, self._settings = program, directory, dict(settings or {})
        self._log = directory / "minio.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"127.0.0.1:{free_port()}"

    def start(self) -> None:
        """Returns when the server answers."""
        environment = os.environ | {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off"}
        environment |= self._settings
        command = [str(self._program), "server", "--quiet", "--address", self.address, str(self._directory / "data")]
        with open(self._log, "ab") as out:
            self._process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(f"the S3 server did not start:\n{self._log.read_text()[-3000:]}")
            time.sleep(0.05)

    def stop(self, *, kill: bool = False) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill() if kill else process.terminate()
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def stopped(self) -> bool:
        return self._process is None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/minio/health/cluster", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def new_bucket(self) -> str:
        """A bucket that nobody else has; its name."""
        name = f"b-{uuid.uuid4().hex[:12]}"
        self.files(allow_bucket_creation=True).create_dir(name)
        return name

    def files(self, **options: bool) -> fs.S3FileSystem:
        """The server as pyarrow sees it, to look at what others have left there."""
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            scheme="http",
            endpoint_override=self.address,
            region="us-east-1",
            **options,
        )

    def uri(self, bucket: str, path: str = "platform", key: str = KEY, secret: str = SECRET) -> str:
        return f"s3://{key}:{secret}@{bucket}/{path}?scheme=http&endpoint_override={self.address}"

    def limited(self, *actions: str) -> dict[str, str]:
        """Credentials that allow only these actions, as environment variables; they last an hour."""
        policy = {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": list(actions), "Resource": ["arn:aws:s3:::*"]}],
        }
        body = urllib.parse.urlencode({"Action": "AssumeRole", "Version": "2011-06-15", "Policy": json.dumps(policy)})
        with urllib.request.urlopen(self._signed(body.encode()), timeout=60) as answer:
            told = dict(re.findall(r"<(AccessKeyId|SecretAccessKey|SessionToken)>([^<]+)<", answer.read().decode()))
        names = {"AccessKeyId": "AWS_ACCESS_KEY_ID", "SecretAccessKey": "AWS_SECRET_ACCESS_KEY"}
        return {names.get(name, "AWS_SESSION_TOKEN"): value for name, value in told.items()}

    def _signed(self, body: bytes) -> urllib.request.Request:
        """A request to the service that hands out credentials, with the fourth version of Amazon's signatures."""
        stamp, digest = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), hashlib.sha256(body).hexdigest()
        scope = (stamp[:8], "us-east-1", "sts", "aws4_request")
        headers = {
            "content-type": "application/x-www-form-urlencoded",
            "host": self.address,
            "x-amz-content-sha256": digest,
            "x-amz-date": stamp,
        }
        lines, names = "".join(f"{k}:{v}\n" for k, v in headers.items()), ";".join(headers)
        asked = hashlib.sha256("\n".join(["POST", "/", "", lines, names, digest]).encode()).hexdigest()
        key = f"AWS4{SECRET}".encode()
        for part in scope:
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(
            key, "\n".join(["AWS4-HMAC-SHA256", stamp, "/".join(scope), asked]).encode(), "sha256"
        ).hex()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={KEY}/{'/'.join(scope)}, SignedHeaders={names}, Signature={signature}"
        )
        return urllib.request.Request(f"http://{self.address}/", data=body, headers=headers, method="POST")


@contextmanager
def running(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[MinIO]:
    server = MinIO(binary(), directory, settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    actions: dict[str, Callable[[], object]] = {"build": binary, "ahead": build_ahead}
    what.add_argument("--build", dest="act", action="store_const", const="build", help="build it if it is missing")
    what.add_argument("--ahead", dest="act", action="store_const", const="ahead", help="the same, in the background")
    try:
        actions[parser.parse_args().act]()
    except Unreachable as why:
        raise SystemExit(f"no S3 server: {why}") from None


if __name__ == "__main__":
    main()
