"""Faults on purpose: kills at named points and at random, on one process and on Spark, always against the oracle."""
