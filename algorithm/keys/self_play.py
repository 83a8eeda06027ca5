"""Configuration of self-play."""

from __future__ import annotations

from algorithm.core.fields import AtLeastOne, Block, Finite, Whole, option


class SelfPlayConfig(Block):
    """Games against past policies, for environments with teams. One team learns at a time."""

    window: Whole = option(
        0,
        "Number of past policies to play against. 0: no self-play, all teams learn at once. ML-Agents: 10.",
        ge=0,
        resume="free: the oldest ones beyond it are dropped",
    )
    save_steps: Whole = option(20_000, "Steps of the learning team between two past policies.", ge=1)
    team_change: AtLeastOne | None = option(
        None, "Steps after which another team learns. null: five times save_steps."
    )
    swap_steps: Whole = option(10_000, "Steps after which the opponents become another past policy.", ge=1)
    play_against_latest_model_ratio: Finite = option(
        0.5, "Probability that they become the newest policy instead.", ge=0, le=1
    )
    initial_elo: Finite = option(
        1200.0, "Rating of the untrained policy.", resume="fixed: ratings begin there"
    )

    @property
    def steps_of_team(self) -> int:
        """Steps after which another team learns."""
        return self.team_change or 5 * self.save_steps
