"""A run that was killed and resumed is the run that never stopped, to the last bit."""

import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.lib.agreement import what_must_agree
from tests.lib.episodes import record
from tests.lib.processes import Program

TASK = """\
default: # prioritised, three steps, two environments; the ring is overwritten twice
  base_config:
    {preset: plain, env_type: GYM, env_name: Pendulum-v1, n_envs: 2, max_step: 700, reset_on_iteration: false}
  nn_config: {q: {dense_n: 16}, policy: {dense_n: 16}}
  replay_config: {capacity: 300}
  sac_config:
    batch_size: 16
    start_step: 100
    write_summary_per_step: 30
    save_model_per_step: 70
    replay_ratio: 0.5
    n_step: 3
    use_n_step_is: true
  eval_config: {per_step: 110, episodes: 1}
  checkpoint_config: {keep: 2}
by_spaces: # the section continuous
  base_config: {preset: auto, max_step: 560}
  sac_config: {use_n_step_is: sampled}
workers:
  base_config: {workers: 2}
own_td_error: # the queue of fresh data, normalised observations, noisy exploration
  base_config: {env_name: "tests.lib.toys:Nested-v0", n_envs: 3, max_step: 900}
  sac_config: {use_add_with_td: true, use_normalization: true, action_noise: [0.1, 0.3]}
rnn:
  base_config: {wrappers: ["algorithm.env.wrappers:KeepElements": {indices: [0, 1]}], max_step: 560}
  nn_config: {rep: {rnn_n: 8}}
  sac_config:
    {seq_encoder: RNN, burn_in_step: 3, learn_step: 4, refresh_carry: true, batch_size: 8}
hindsight: # goals of the episode in windows of a memory
  inherited: rnn
  base_config: {env_name: "algorithm.env.toys:ToyBits-v0", wrappers: []}
hybrid:
  base_config: {env_name: "algorithm.env.toys:ToyHybrid-v0", max_step: 400}
  nn_config: {policy: {log_std: tanh}}
  sac_config: {learning_rate_schedule: cosine, learning_rate_end: 0.5}
images:
  base_config: {env_name: "algorithm.env.toys:ToyTwoCameras-v0", n_envs: 1, max_step: 400}
  nn_config: {rep: {random_shift: 2}}
extended: # all that can be attached at once
  base_config: {env_name: "algorithm.env.toys:ToyTwoCameras-v0", n_envs: 1, max_step: 300}
  sac_config:
    siamese: BYOL
    siamese_use_q: true
    siamese_use_adaptive: true
    use_prediction: true
    curiosity: FORWARD
    use_rnd: true
    rnd_n_sample: 3
    batch_size: 8
    replay_ratio: 0.25
cross: # batch norm over windows with padding, no target networks, a policy every third update
  inherited: rnn
  nn_config: {q: {norm: batch}, policy: {norm: batch}}
  sac_config: {use_target_network: false, policy_update_per_step: 3, batch_size: 16}
quantiles:
  base_config: {env_name: "algorithm.env.toys:ToyHybrid-v0", max_step: 400}
  nn_config: {q: {block: residual}}
  sac_config: {value_head: quantile, quantile_num: 5, weight_decay: 0.01, policy_update_per_step: 2}
flash: # windows with padding, priorities, choices beside continuous actions
  inherited: rnn
  base_config: {env_name: "algorithm.env.toys:ToyHybrid-v0", wrappers: [], preset: flash64, max_step: 400}
  sac_config: {batch_size: 16, use_priority: true}
fresh: # every transition once
  sac_config: {use_replay_buffer: false, use_priority: false}
lessons: # killed in the middle of one, whose measure is smoothed and whose values are drawn
  base_config: {env_name: "tests.lib.toys:Weighed-v0", max_step: 560}
  environment_parameters:
    mass:
      curriculum:
        - {name: light, value: 1, completion_criteria: {threshold: 2, min_lesson_length: 40}}
        - name: middle
          value: {sampler_type: uniform, sampler_parameters: {min_value: 2, max_value: 3}}
          completion_criteria: {threshold: 7.4, min_lesson_length: 60}
        - {name: heavy, value: 4}
    gravity: {sampler_type: gaussian, sampler_parameters: {mean: 9.81, st_dev: 0.5}, set: gravity}
  eval_config: {lesson: current}
td3: # a slow policy, noise of targets, priorities
  algorithm: TD3
td3_memory:
  inherited: rnn
  algorithm: TD3
ppo: # rollouts of 96 steps, checkpoints every 70
  algorithm: PPO
  base_config: {max_step: 560}
  nn_config: {policy: {dense_n: 8}, v: {dense_n: 8}}
  ppo_config: {rollout_step: 48, num_minibatch: 4, num_epoch: 3}
ppo_memory:
  inherited: ppo
  base_config: {env_name: "algorithm.env.toys:ToyHybrid-v0"}
  nn_config: {rep: {rnn_n: 8}}
  ppo_config: {sequence_step: 7}
  sac_config: {seq_encoder: RNN, curiosity: INVERSE}
ppo_attention:
  inherited: ppo
  nn_config: {rep: {attn_n: 8}}
  ppo_config: {sequence_step: 7}
  sac_config: {seq_encoder: ATTN, burn_in_step: 5}
ppo_separate:
  inherited: ppo
  base_config: {env_name: "algorithm.env.toys:ToyCatch-v0", max_step: 400}
  ppo_config: {shared: false, num_epoch: 1}
a2c:
  inherited: ppo
  algorithm: A2C
acer: # a replay of windows, continuous actions
  inherited: ppo
  algorithm: ACER
  nn_config: {q: {dense_n: 8}}
  acer_config: {rollout_step: 16, start_step: 100, capacity: 400}
acer_memory: # choices
  inherited: acer
  base_config: {env_name: Acrobot-v1}
  nn_config: {rep: {rnn_n: 8}}
  sac_config: {seq_encoder: RNN, use_normalization: true, reward_scaling: true}
acktr: # checkpoints between two inversions
  inherited: a2c
  algorithm: ACKTR
  acktr_config: {rollout_step: 10, inverse_every: 4}
ppo_imitation: # all signals, two horizons, cloning before and beside the updates
  inherited: ppo
  sac_config: {use_normalization: true, curiosity: FORWARD}
  reward_signals:
    updates: 2
    extrinsic: {strength: 0.5}
    rnd: {strength: 0.1, gamma: 0.9, ends: false}
    gail: {strength: 1, dense_n: 8}
  demonstrations: {path: shown.npz}
  behavioral_cloning: {strength: 1, steps: 400, pretrain: 40}
sac_demonstrated: # in batches, cloned before and beside the updates, updates before the first step
  sac_config: {use_n_step_is: false, reward_scaling: true}
  demonstrations: {path: shown.npz, share: 0.5, pretrain: 40}
  behavioral_cloning: {strength: 0.5, steps: 600, pretrain: 40, updates: 2}
  nn_config: {rep: {dense_n: 8, dense_depth: 1}}
sac_offline:
  base_config: {max_step: 400}
  sac_config: {start_step: 0, use_n_step_is: false, use_normalization: true}
  demonstrations: {path: shown.npz, offline: true, pretrain: 10}
td3_offline_memory:
  inherited: [rnn, sac_offline]
  algorithm: TD3
  demonstrations: {path: hidden.npz}
td3_demonstrated: # the policy as it begins fills the replay
  algorithm: TD3
  sac_config: {start_step: 0}
  demonstrations: {path: shown.npz, share: 0.25, warm_up_policy: 100}
  behavioral_cloning: {strength: 1, pretrain: 40}
sac_imitation: # three horizons
  reward_signals:
    updates: 2
    extrinsic: {strength: 0}
    rnd: {strength: 0.1, gamma: 0.9, ends: false}
    gail: {strength: 1, form: AIRL, gamma: 0.8}
  demonstrations: {path: shown.npz}
self_play: # killed between past policies, opponents and teams
  base_config:
    {env_type: PETTINGZOO, env_name: pettingzoo.classic.tictactoe_v3, n_envs: 3, max_step: 560}
  self_play: {window: 3, save_steps: 50, team_change: 120, swap_steps: 30}
  eval_config: {episodes: 4}
self_play_memory: # opponents with a recurrent state, rollouts in which actions wait
  inherited: [self_play, ppo]
  base_config:
    {env_type: PETTINGZOO, env_name: pettingzoo.classic.tictactoe_v3, n_envs: 3, max_step: 560}
  nn_config: {rep: {rnn_n: 8}}
  ppo_config: {sequence_step: 7}
  sac_config: {seq_encoder: RNN}
"""


@pytest.fixture
def models(cwd: Path) -> Path:
    """The folder of the runs of the task."""
    (cwd / "task").mkdir()
    (cwd / "task" / "config.yaml").write_text(TASK)
    record(cwd / "task" / "shown.npz", "Pendulum-v1")
    _hide_velocity(cwd / "task")
    return cwd / "models" / "task"


def _hide_velocity(folder: Path) -> None:
    """Write the same recording as seen through the wrapper of the section ``rnn``."""
    with np.load(folder / "shown.npz") as found:
        arrays = {name: found[name] for name in found.files}
    seen = {name: value[:, :2] for name, value in arrays.items() if "/obs/" in name}
    np.savez(folder / "hidden.npz", **{**arrays, **seen})


def killed(checkpoints: Path, *flags: str, rng: random.Random) -> None:
    """Begin, wait for a checkpoint that was not there, kill -9 a moment later."""
    before = set(checkpoints.glob("step_*"))
    program = Program(Path.cwd(), *flags, "-n", "killed")
    program.until(lambda: set(checkpoints.glob("step_*")) - before)
    time.sleep(rng.uniform(0.0, 0.15))
    program.send(signal.SIGKILL)
    assert program.end() == -signal.SIGKILL, program.said


QUICK = ("hybrid", "lessons", "ppo_memory", "td3", "sac_demonstrated", "self_play")
"""Sections of every run of the suite: a replay, lessons, rollouts with stored states, demonstrations."""


@pytest.mark.fault("F01")
@pytest.mark.fault("F02")
@pytest.mark.parametrize(
    "section",
    [
        pytest.param(section, marks=[] if section in QUICK else pytest.mark.slow)
        for section in yaml.safe_load(TASK)
    ],
)
def test_killed_several_times_it_ends_as_the_one_that_never_stopped(models: Path, section: str) -> None:
    rng, flags = random.Random(section), ("-c", section, "--seed=1")
    straight = Program(Path.cwd(), *flags, "-n", "straight", output="straight.txt")
    killed(models / "killed" / "checkpoints", *flags, rng=rng)
    for _ in range(1 if section in QUICK else 2):
        killed(models / "killed" / "checkpoints", "--resume", rng=rng)
    assert straight.end() == 0, straight.said
    last = Program(Path.cwd(), "--resume", "-n", "killed")
    assert last.end() == 0 and "not bit-exact" not in last.said, last.said
    assert what_must_agree(models / "killed") == what_must_agree(models / "straight")
