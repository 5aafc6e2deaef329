"""The whole story of a cluster: `ajoin serve` and its standby on three workers that share nothing but an S3 server.

Workers come, leave and die, drivers are killed and frozen; clients that know both addresses follow their queries
through all of it, and have every row once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import fs

from ajoin.client.client import Client
from tests.ajoin.followed import BATCH, Story, until
from tests.ajoin.world import WAIT
from tests.cluster.processes import ROOT
from tests.cluster.served import served
from tests.runtime.kill_target import SQL
from tests.tools.minio import MinIO

pytestmark = pytest.mark.spark

MANY = 3600
"""Tuples per stream: more than a story takes, because it goes on until something has happened."""


def test_a_standby_takes_over_from_a_driver_that_is_killed_within_an_epoch_on_s3(s3: MinIO, tmp_path: Path) -> None:
    with served(tmp_path, s3) as cluster:
        primary, standby = cluster.pair(3, 2)
        known = [standby.address, primary.address]
        with Client(known, timeout=WAIT) as client:
            story = Story(tmp_path, client, known, 12 * BATCH)
            story.until_read()
            assert [e.cores for e in client.status().executors] == [1, 1, 1]
            assert cluster.workers(client) == ["worker-1", "worker-2", "worker-3"]
            cluster.close_gate()
            story.feed(BATCH)
            cluster.until_gated()
            primary.kill()
            cluster.open_gate()
            standby.until_said("listening")
            story.end()
            assert len(client.status().executors) == 2, "its own application"


@pytest.mark.long
def test_the_whole_story_on_s3(s3: MinIO, tmp_path: Path) -> None:
    with served(tmp_path, s3) as cluster:
        primary, standby = cluster.pair(5, 2)
        first, second, third = cluster.spark.workers
        known = [standby.address, primary.address]
        with Client(known, timeout=WAIT) as client:
            story = Story(tmp_path, client, known, MANY)
            story.until_read()
            assert len(client.status().executors) == 4, "what the standby has left of six cores"
            story.steps_until(lambda: {*cluster.workers(client)} == {w.name for w in (first, second, third)})

            fourth = cluster.spark.add_worker()
            story.steps_until(lambda: fourth.name in cluster.workers(client))
            assert len(client.status().executors) == 5

            cluster.spark.decommission(second)
            story.steps_until(lambda: second.name not in cluster.workers(client))
            late = client.create_query(SQL["q1"], id="late")

            sprung = cluster.trap(third)
            while not sprung.exists():
                story.feed(BATCH)
                until(lambda: sprung.exists() or story.is_read(), "the epoch neither ends nor hangs")
            epoch = client.status().epoch
            cluster.kill_trapped(third)
            story.until_read()
            assert client.status().epoch > epoch and primary.process.poll() is None
            story.steps_until(lambda: {*cluster.workers(client)} == {first.name, fourth.name})

            story.feed(2 * BATCH)
            os.kill(primary.process.pid, signal.SIGKILL)
            story.feed(BATCH)
            standby.until_said("listening")
            story.until_read()
            story.steps_until(lambda: len(cluster.workers(client)) == 2)
            assert client.query("late").uid == late.uid
            story.check()


@pytest.mark.long
def test_a_driver_that_was_frozen_within_an_epoch_commits_nothing_on_s3(s3: MinIO, tmp_path: Path) -> None:
    """Its tasks go on while it sleeps, and write what no record lists."""
    with served(tmp_path, s3) as cluster:
        primary, standby = cluster.pair(3, 2)
        known = [primary.address, standby.address]
        with Client(known, timeout=WAIT) as client:
            story = Story(tmp_path, client, known, MANY)
            story.until_read()
            cluster.close_gate()
            story.feed(BATCH)
            cluster.until_gated()
            os.killpg(primary.process.pid, signal.SIGSTOP)
            standby.until_said("listening")
            story.until_read()
            cluster.open_gate()
            story.step()
            os.killpg(primary.process.pid, signal.SIGCONT)
            assert primary.process.wait(WAIT) == 3, primary.log
            error = primary.until_said("error")["error"]
            assert isinstance(error, dict) and error["reason"] == "STATE_TAKEN", error
            assert "was taken over by a platform on" in error["message"]
            story.step()
            with Client(standby.address, timeout=WAIT) as direct:
                assert direct.status().epoch == client.status().epoch
            story.check()


@pytest.mark.long
@pytest.mark.parametrize("with_store", [True, False])
def test_the_demo_of_a_cluster_on_s3(s3: MinIO, tmp_path: Path, with_store: bool) -> None:
    bucket = s3.new_bucket()
    store = ["--store", s3.uri(bucket)] if with_store else []
    ajoin = [sys.executable, "-c", "from ajoin.cli import main; main()"]
    command = [*ajoin, "cluster-demo", "--workers", "3", "--json", *store]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=1000
    )
    assert done.returncode == 0, done.stderr[-6000:]
    summary = json.loads(done.stdout)
    assert all(query["rows"] > 0 for query in summary["queries"].values())
    assert summary["savings"]["joins_run"] < summary["savings"]["joins_asked"]
    assert "worker-3: process" in done.stderr
    left = s3.files().get_file_info(fs.FileSelector(bucket, recursive=True))
    assert [file.path for file in left if file.type == fs.FileType.File] == []
