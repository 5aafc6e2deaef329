"""The store: one place that all tasks see, for what they exchange, for the state, and for what must survive."""
