"""The durable tier: a second place for the state, which survives the loss of the machine."""
