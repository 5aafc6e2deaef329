"""A real Spark cluster: a master and workers as processes of their own."""
