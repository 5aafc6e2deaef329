"""Replay: a recorded scenario through the real engine, step by step (`ajoin replay`).

steps.py      what a line can ask for, as values
grammar.py    how a line is read
scenario.py   the whole file; every malformed line is refused before the engine starts
runner.py     drives the engine through the steps
output.py     results.jsonl, queries.json, report.json
"""
