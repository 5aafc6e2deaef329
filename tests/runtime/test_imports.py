"""Kernels, buckets and operators start without Spark and without gRPC: a worker or a test pays for neither."""

from __future__ import annotations

import subprocess
import sys

MODULES = (
    "runtime.operators.join",
    "runtime.operators.source",
    "runtime.operators.rebuild",
    "runtime.engine.engine",
    "ajoin.testing",
)


def test_importing_brings_neither_spark_nor_grpc():
    """All in one process: who comes later may bring less, and whoever brings one of them is named."""
    program = f"""
import sys
from importlib import import_module
for module in {MODULES}:
    import_module(module)
    print(module, [m for m in ("pyspark", "grpc", "py4j") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{module} []" for module in MODULES]


def test_a_task_does_without_networkx():
    """Its 20 MB would be in every worker; only the control plane looks at graphs."""
    imports = ", ".join(module for module in MODULES if module.startswith("runtime.operators"))
    program = f"import {imports}, sys; print('networkx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
