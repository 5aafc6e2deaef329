"""The three operators of the paper, as functions a task runs: source, join, sink.

Each takes what all tasks of the stage share and one task, reads buckets, writes buckets, and returns a small report.
None knows Spark; the executor decides where they run. Whatever a task writes is named by ids handed out before it
ran, so running a task twice writes the same thing twice.
"""
