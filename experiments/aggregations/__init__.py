"""Aggregation experiments: one stream, windows and groups; see __main__.py."""
