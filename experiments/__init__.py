"""Experiments: section 7 of the AJoin paper on this platform and on what users would pick instead.

    config (TOML) ─► driver ─► per point: data, queries ─► one worker process per system ─► Measurement
                          └──► results.parquet ─► report.md + plots

A worker is a process of its own, so its processor time and memory are its own, and a system that hangs can be ended
without taking the experiment along. See docs/experiments.md.
"""
