"""Which programs the built-in team covers, without a GPU."""
