"""Certificates for tests, made when they are needed: an authority and what it signs. Nothing of this is stored."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Pair:
    cert: Path
    key: Path


class Authority:
    """Signs certificates, valid for a day."""

    def __init__(self, folder: Path, name: str) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("the openssl command is needed to make certificates")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._name = folder, name
        self._self = self._files(name)
        run(
            *("req", "-x509", *NEW_KEY, "-keyout", self._self.key, "-out", self._self.cert),
            *("-days", "1", "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE"),
        )

    @property
    def cert(self) -> Path:
        return self._self.cert

    def sign(self, name: str, san: str = "IP:127.0.0.1,DNS:localhost") -> Pair:
        made, request, extensions = self._files(name), self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={san}\n")
        run("req", *NEW_KEY, "-keyout", made.key, "-out", request, "-subj", f"/CN={name}")
        run(
            *("x509", "-req", "-in", request, "-CA", self._self.cert, "-CAkey", self._self.key, "-CAcreateserial"),
            *("-days", "1", "-extfile", extensions, "-out", made.cert),
        )
        return made

    def _files(self, name: str) -> Pair:
        return Pair(self._folder / f"{self._name}-{name}.pem", self._folder / f"{self._name}-{name}.key")


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def run(*arguments: object) -> None:
    # Without close_fds Python spawns instead of forking: a fork disturbs the gRPC threads of this process.
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, close_fds=False)
    assert done.returncode == 0, done.stderr
