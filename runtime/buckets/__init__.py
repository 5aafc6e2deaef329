"""Buckets: immutable, columnar, self-describing, memory-mapped."""
