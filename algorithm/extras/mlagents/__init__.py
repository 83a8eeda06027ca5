"""Files of ML-Agents: trainer configurations of any release since 0.12, and ``.demo`` recordings."""
