"""How neurons move between rounds: where blocks rest, plans of an exchange, copies, what is left after a loss."""
