"""How a config becomes live: a persistent step machine, and the reconciler that mends the rest."""
