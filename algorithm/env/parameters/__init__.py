"""Parameters of environments: numbers, samplers, curricula, from the configuration into an episode."""
