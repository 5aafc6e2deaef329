"""The operators' guide: its configuration files are read by the platform, Spark knows every setting, metrics exist."""

from __future__ import annotations

import re
import zipfile
from functools import cache
from pathlib import Path

import pyspark
import pytest

from ajoin.config import load
from ajoin.platform.metrics import query_metrics, status_metrics, stream_metrics
from runtime.api import PlatformStatus
from tests.tools.docs import ROOT

GUIDE = (ROOT / "docs" / "cluster.md").read_text()
FILES = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
JARS = ("spark-core_", "spark-yarn_", "spark-kubernetes_", "spark-common-utils_")


@cache
def spark_knows() -> bytes:
    """The classes of Spark, in which the names of its settings stand as they are."""
    found = b""
    for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar"):
        if jar.name.startswith(JARS):
            with zipfile.ZipFile(jar) as classes:
                wanted = [
                    n
                    for n in classes.namelist()
                    if re.search(r"[/.](config/|.*[cC]onfig|package)[^/]*\.class$|config/.*\.class$", n)
                ]
                found += b"".join(classes.read(name) for name in wanted)
    return found


@pytest.mark.parametrize(("master", "text"), list(zip(["spark", "yarn", "k8s"], FILES, strict=True)))
def test_its_settings_are_those_of_the_platform_and_of_spark(master: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "ajoin.toml"
    file.write_text(text)
    settings = load({}, file).settings
    assert settings.spark_master.partition(":")[0] == master
    assert settings.store and settings.spark_conf
    for key in (entry.partition("=")[0] for entry in settings.spark_conf):
        assert key.encode() in spark_knows(), f"Spark has no setting {key}"
    assert b"spark.no.such.setting" not in spark_knows()


def test_the_metrics_it_names_are_exported() -> None:
    status = PlatformStatus("RUNNING", 7, 3, 2, 1, 500, 60, 4, 1000, 0.25, 9.5)
    metrics = [*status_metrics(status), *stream_metrics([]), *query_metrics([], [])]
    exported = {metric.name + ("_total" if metric.type == "counter" else "") for metric in metrics}
    named = set(re.findall(r"`(ajoin_[a-z_]+)`", GUIDE))
    assert len(named) > 8
    assert named <= exported, named - exported
