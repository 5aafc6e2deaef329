"""Hostile queries, tuples, sinks, streams and clients in random lives, on Spark: `python -m tests.poison`."""
