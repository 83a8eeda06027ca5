"""What comes from ML-Agents: trainer configurations of any release since 0.12, and ``.demo`` files."""
