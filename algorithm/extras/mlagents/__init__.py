"""Files of ML-Agents: trainer configurations of any release since 0.18, and ``.demo`` recordings."""
