"""What the experiments on the store are made of (experiments/store.py)."""
