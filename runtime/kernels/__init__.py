"""Compiled kernels: arrays of integers in, arrays of integers out.

Nothing in this package knows Spark, files, queries or SQL. Query sets are rows of a uint64 matrix; bit s % 64 of
word s // 64 belongs to slot s. Everything is importable and testable without a JVM; compiled code is cached on disk, so
that no epoch pays for compilation.
"""
