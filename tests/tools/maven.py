"""Programs in Java that tests run: Maven brings their jars once, into a cache outside the repository.

The cache is named after the content of the pom, so a change of a version fetches anew. `Unreachable` means that the
jars are not cached and cannot be fetched.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


class Unreachable(Exception):
    """The jars are not here and cannot be fetched; says why."""


def jars(pom: Path, folder: str) -> Path:
    """The directory with the jars that a pom names, and all that they need; fetched when missing."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / folder
    wanted = base / hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    if wanted.is_dir():
        return wanted
    for tool in ("mvn", "java"):
        if shutil.which(tool) is None:
            raise Unreachable(f"{tool} is not installed, and the jars are not in {base}")
    base.mkdir(parents=True, exist_ok=True)
    fetched = Path(tempfile.mkdtemp(prefix=".fetching-", dir=base))
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    done = subprocess.run([*command, f"-DoutputDirectory={fetched}"], capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        shutil.rmtree(fetched, ignore_errors=True)
        said = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise Unreachable(f"Maven could not fetch the jars: {' '.join(said[:2]) or done.stderr[-300:]}")
    try:
        fetched.rename(wanted)
    except OSError:  # somebody else was faster
        shutil.rmtree(fetched, ignore_errors=True)
    return wanted
