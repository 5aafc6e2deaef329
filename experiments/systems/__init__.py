"""Systems under test, each behind the same small interface (base.py), each in a process of its own (protocol.py)."""
