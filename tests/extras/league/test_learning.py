"""Self-play learns tic-tac-toe, whose best play is known: judged by games against that."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import asac
from main import main

pytest.importorskip("pettingzoo")

Board = tuple[int, ...]
"""The fields: 1 for a mark of the side to move, −1 for one of the other, 0 for a free one."""

_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def after(board: Board, move: int) -> Board:
    """Return the board after a move, as the other side sees it."""
    return tuple(-1 if field == move else -mark for field, mark in enumerate(board))


@cache
def value(board: Board) -> int:
    """Return the result of perfect play for the side to move: 1, 0 or −1."""
    if any(all(board[field] == -1 for field in line) for line in _LINES):
        return -1
    free = [move for move in range(9) if not board[move]]
    return max((-value(after(board, move)) for move in free), default=0)


def perfect(board: Board, rng: np.random.Generator) -> int:
    """Return one of the best moves, at random."""
    free = [move for move in range(9) if not board[move]]
    best = [move for move in free if -value(after(board, move)) == value(board)]
    return int(rng.choice(best))


def results(policy: asac.Policy, games: int, *, against_perfect: bool) -> list[int]:
    """Return the result of each game, 1, 0 or −1, half of them begun by the policy, which takes its mode."""
    from pettingzoo.classic import tictactoe_v3

    env, rng, outcomes = tictactoe_v3.env(), np.random.default_rng(1), []
    for game in range(games):
        env.reset(seed=game)
        ours = env.possible_agents[game % 2]
        for agent in env.agent_iter():
            seen, reward, terminated, truncated, _ = env.last()
            if terminated or truncated:
                if agent == ours:
                    outcomes.append(int(reward))
                env.step(None)
            elif agent == ours:
                env.step(int(policy.act(seen)[0]))
            elif against_perfect:
                planes = seen["observation"].reshape(9, 2).astype(int)
                env.step(perfect(tuple((planes[:, 0] - planes[:, 1]).tolist()), rng))
            else:
                env.step(int(rng.choice(np.flatnonzero(seen["action_mask"]))))
    return outcomes


def test_the_perfect_player_is_one() -> None:
    assert value((0,) * 9) == 0
    assert perfect((1, 1, 0, -1, -1, 0, 0, 0, 0), np.random.default_rng(1)) == 2
    assert perfect((1, 0, 0, -1, -1, 0, 0, 0, 1), np.random.default_rng(1)) == 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_self_play_comes_close_to_perfect_play(seed: int, cwd: Path) -> None:
    assert main(["pettingzoo/tictactoe", "-n", "a", f"--seed={seed}", "--quiet"]) == 0
    policy = asac.Run(cwd / "models" / "pettingzoo" / "tictactoe" / "a").policy("latest")
    at_random = results(policy, 500, against_perfect=False)
    assert np.mean(np.array(at_random) >= 0) >= 0.99
    assert np.mean(np.array(results(policy, 200, against_perfect=True)) == 0) >= 0.95
