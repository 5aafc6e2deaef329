"""Aggregates as arrays: what is kept of a group's tuples, how it is combined, what comes out.

    components   which partials an aggregate needs (AVG: a sum and a count), and its value from them
    states       lift, fold, scale, store: the one entrance for who works with partials
    partials     the arrays themselves
    numbers      count, sum, moments
    choices      min, max, first, last, arg_min, arg_max
    lists        runs (sorted values with counts), sketches
    sliding      windows over slices, for all groups at once
    plugins      functions that users bring

A state has one entry per group, slice and query set (or per tuple, or per window row: it does not know). Nothing here
knows files of the engine, plans or windows, and nothing loops over entries in Python.
"""
