"""Kernels, buckets and operators start without Spark and without gRPC: a worker or a test pays for neither."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "runtime.operators.join",
        "runtime.operators.source",
        "runtime.operators.rebuild",
        "runtime.engine.engine",
        "ajoin.testing",
    ],
)
def test_importing_brings_neither_spark_nor_grpc(module):
    program = f"import {module}, sys; print([m for m in ('pyspark', 'grpc', 'py4j') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_importing_the_spark_executor_does_not_start_anything():
    program = "import runtime.spark.executor, sys; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
