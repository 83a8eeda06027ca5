"""Translation of ML-Agents' trainer configurations, of any release since 0.12, into ours."""

from __future__ import annotations

from algorithm.config.mlagents.translate import Translation, translate

__all__ = ["Translation", "translate"]
