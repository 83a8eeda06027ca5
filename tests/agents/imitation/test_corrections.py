"""A person's steps as demonstrations."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from algorithm.agents.demonstrations import DemoStore
from algorithm.agents.imitation.batches import Corrections, MixedBatches
from algorithm.core.data import PERSON_LOGP, UNKNOWN_LOGP
from algorithm.replay.budget import MemoryBudget
from algorithm.replay.buffer import ReplayBuffer
from main import main
from tests.lib.batches import SMALL
from tests.lib.grid import demonstrations
from tests.lib.oracles_replay import make_segment
from tests.lib.sessions import weights_hash

TASK = """\
default:
  base_config:
    preset: plain
    env_type: GYM
    env_name: "tests.run.experience.intervening:Intervening-v0"
    env_args: {style: person}
    max_step: 260
  nn_config: {q: {dense_n: 8}, policy: {dense_n: 8}}
  replay_config: {capacity: 150, beta_increment_per_sampling: 0.001} # not annealed to max_step
  sac_config: {batch_size: 16, start_step: 60, replay_ratio: 0.25, compile: "off"}
  demonstrations: {share: 0.5, interventions: true}
  eval_config: {per_step: -1}
"""


def filled(replay: ReplayBuffer, rng: np.random.Generator, segments: int) -> list[int]:
    """Add segments of three streams, a third of whose steps are a person's; return the ids of those."""
    steps, ids = dict.fromkeys(range(3), 0), []
    for _ in range(segments):
        stream, length = int(rng.integers(3)), int(rng.integers(1, 6))
        ended = bool(rng.random() < 0.3)
        segment = make_segment(
            SMALL, stream=stream, episode=0, start=steps[stream], length=length, truncated=ended
        )
        logp = np.where(rng.random((length, 1)) < 1 / 3, PERSON_LOGP, rng.choice([-1.0, UNKNOWN_LOGP]))
        logp = np.broadcast_to(logp, segment.behaviour_logp.shape).astype(np.float32)
        new = replay.add(replace(segment, behaviour_logp=logp))
        ids += new[logp[:, 0] == PERSON_LOGP].tolist()
        steps[stream] = 0 if ended else steps[stream] + length
    return ids


def make_replay(capacity: int = 60, learn: int = 1) -> ReplayBuffer:
    return ReplayBuffer(SMALL, capacity=capacity, batch_size=8, learn=learn, seed=0)


def make_store() -> DemoStore:
    memory = MemoryBudget(free=10**9)
    return DemoStore(
        demonstrations(SMALL), SMALL, burn_in=0, learn=1, carry_shape=(), memory=memory, behaviour="x"
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_steps_of_a_person_are_known_whatever_has_been_overwritten(seed):
    """Also those in rows that had no action when they were written."""
    rng, replay = np.random.default_rng(seed), make_replay()
    corrections = Corrections(replay, torch.Generator().manual_seed(seed))
    expected: list[int] = []
    for _ in range(30):
        expected += filled(replay, rng, int(rng.integers(1, 4)))
        expected = [i for i in expected if replay.alive(np.array([i]))[0]]
        drawn = corrections.draw(200)
        assert (drawn is None) == (not expected)
        if drawn is not None:
            assert sorted(corrections._ids.tolist()) == sorted(expected)
            assert (drawn.behaviour_logp[:, 0] == PERSON_LOGP).all() and (drawn.ids == -1).all()
    assert len(expected) > 5 and replay.next_id > 2 * replay.capacity


def test_recordings_and_corrections_are_drawn_as_often_as_there_are_steps():
    replay, store = make_replay(), make_store()
    generator = torch.Generator().manual_seed(0)
    corrections = Corrections(replay, generator, store)
    batch = corrections.draw(50)
    assert not (batch.behaviour_logp == PERSON_LOGP).any(), "there are recordings alone"
    ids = filled(replay, np.random.default_rng(0), 12)
    drawn = corrections.draw(4000).behaviour_logp[:, 0, 0] == PERSON_LOGP
    share = len(ids) / (len(ids) + store.num_steps)
    assert drawn.float().mean().item() == pytest.approx(share, abs=4 * (share * (1 - share) / 4000) ** 0.5)


def test_a_run_with_corrections_is_resumed_to_the_same_bits(cwd, capsys):
    """Its replay has overwritten some of them before."""
    (cwd / "task").mkdir()
    (cwd / "task" / "config.yaml").write_text(TASK)
    words = ["./task", "--device=cpu", "--seed=1", "--quiet"]
    assert main([*words, "-n", "whole"]) == 0
    assert main([*words, "-n", "parts", "--max_step=170"]) == 0
    assert main(["./task", "--device=cpu", "-n", "parts", "--resume", "--max_step=260"]) == 0
    assert "resumed exactly" in capsys.readouterr().out
    whole, parts = (cwd / "models" / "task" / name for name in ("whole", "parts"))
    assert weights_hash(whole) == weights_hash(parts)
    assert (
        main(
            [
                *words,
                "-n",
                "without",
                "-o",
                "demonstrations.interventions=false",
                "-o",
                "demonstrations.share=0",
            ]
        )
        == 0
    )
    assert weights_hash(whole) != weights_hash(whole.with_name("without"))


def test_until_a_person_has_acted_a_batch_is_of_the_replay_alone():
    replay = make_replay()
    replay.add(make_segment(SMALL, stream=0, episode=0, start=0, length=20))
    batches = MixedBatches(replay, Corrections(replay, torch.Generator()).draw, 0.5)
    assert len(batches.sample().ids) == 4
    filled(replay, np.random.default_rng(0), 8)
    batch = batches.sample()
    assert (batch.ids[:4] >= 0).all() and (batch.ids[4:] == -1).all() and len(batch.ids) == 8
