"""Every message about a wrong configuration or command line: the input as its name, and the text."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import gymnasium as gym

from algorithm.app.cli.ds import parse_distributed
from algorithm.app.cli.parsing import parse_args
from algorithm.config import ConfigError, load_config, load_config_file

ROOT = Path(__file__).parents[2]
TASK = "default:\n  base_config: {env_type: GYM, env_name: Pendulum-v1}\n"

SECTIONS = (
    "  base_config: {n_envs: 1e9}",
    "  sac_config: {learning_rte: 1}",
    "  sac_confg: {}",
    "  sac_config: {capacity: 9}",
    "  n_step: 3",
    "  sac_config:\n    eval_config: {}",
    "  sac_config: {capacty: 9}",
    "  sac_config: {zzzzzz: 9}",
    "  sac_config:\n    n_step: many",
    "  sac_config: {n_step: 2.5}",
    "  sac_config: {n_step: true}",
    "  sac_config: {use_priority: 1}",
    "  sac_config: {nn: 3}",
    "  sac_config: {gamma: 1.5}",
    "  sac_config: {tau: .nan}",
    "  sac_config: {n_step: null}",
    "  base_config: {env_type: GIM}",
    "  sac_config: {n_step: {a: 1}}",
    "  sac_config: 3",
    "  eval_config: {per_step: 0}",
    "  eval_config: {per_step: -2}",
    "  base_config: {noise_increasing_rate: 0.1}\n  sac_config: {action_noise: [0, 0.1]}",
    "  algorithm: PPO\n  ppo_config: {shared: false}\n  sac_config: {seq_encoder: RNN}",
    "  algorithm: PPO\n  base_config: {noise_increasing_rate: 0.1}",
    "  reward_signals: {extrinsic: {strength: 0}}",
    "  reward_signals: {gail: {strength: 1}}",
    "  algorithm: PPO\n  behavioral_cloning: {strength: 1}",
    "  algorithm: ACER\n  behavioral_cloning: {strength: 1}\n  demonstrations: {path: a.npz, pretrain: 9}",
    "  behavioral_cloning: {updates: 2}",
    "  demonstrations: {share: 0.5, pretrain: 9, offline: true}",
    "  algorithm: PPO\n  demonstrations: {path: a.npz, share: 0.5, offline: true, warm_up_policy: 9}",
    "  demonstrations: {path: a.npz, share: 1}",
    "  demonstrations: {path: a.npz, share: 0.001}",
    "  demonstrations: {path: a.npz, share: 0.5}\n  sac_config: {use_replay_buffer: false}",
    "  demonstrations: {path: a.npz, value_weight: 0.2}",
    "  demonstrations: {warm_up_policy: 9}\n  sac_config: {start_step: 500}",
    "  behavioral_cloning: {strength: 1}\n  demonstrations: {path: a.npz}\n"
    "  sac_config: {discrete_dqn_like: true}",
    "  demonstrations: {path: a.npz, offline: true, share: 0.1, warm_up_policy: 9}\n"
    "  sac_config: {start_step: 500, use_replay_buffer: false, discrete_dqn_like: true}\n"
    "  reward_signals: {gail: {strength: 1}}\n  base_config: {max_iter: 9}",
    "  base_config: {env_type: UNITY, unity_args: {editor: true}, n_envs: 1}\n"
    "  demonstrations: {path: a.npz, offline: true}",
    "  algorithm: PPO\n  behavioral_cloning: {pretrain: 9}",
    "  behavioral_cloning: {batch_size: 0}",
    "  reward_signals: {rnd: {strength: -1}}",
    "  reward_signals: {curiosity: {gamma: 0.9}, rnd: {ends: false}, gail: {gamma: 1}}",
    "  reward_signals: {updates: 0, gail: {gamma: 1.5}}",
    "  demonstrations: {path: 3}",
    "  algorithm: DDPG",
    "  algorithm: ACKTR\n  sac_config: {seq_encoder: RNN}",
    "  algorithm: acktr",
    "  algorithm: sac",
    "  algorithm: TD4",
    "  ma_config: {B: {algorithm: A3C}}",
    "  algorithm: A3C\n  base_config: {n_envs: 2, workers: 2, reset_on_iteration: true}\n"
    "  sac_config: {curiosity: FORWARD, extensions: [{a.py:A: {}}]}",
    "  algorithm: A3C\n  base_config: {env_type: UNITY}\n  demonstrations: {path: a.npz}\n"
    "  reward_signals: {rnd: {strength: 1}, gail: {strength: 1}}\n  behavioral_cloning: {strength: 1}",
    "  algorithm: A3C\n  a3c_config: {num_processes: 1}\n  base_config: {n_envs: 2}",
    "  algorithm: PPO\n  sac_config: {tau: 0.01}",
    "  algorithm: PPO\n  sac_config: {use_priority: true}",
    "  algorithm: PPO\n  sac_config:\n    n_step: 3",
    "  algorithm: PPO\n  sac_config: {alpha: 0.6}",
    "  algorithm: PPO\n  sac_config: {siamese: ATC}",
    "  algorithm: A2C\n  sac_config: {use_rnd: true}",
    "  algorithm: PPO\n  ppo_config: {rollout_step: 99, num_minibatch: 32}\n  sac_config: {seq_encoder: RNN}",
    "  nn_config: {v: {dense_n: 8}}",
    "  algorithm: PPO\n  nn_config: {q: {dense_n: 8}}",
    "  algorithm: PPO\n  nn_config:\n    rep: {random_shift: 4}",
    "  algorithm: PPO\n  ppo_config: {rollout_step: 8, num_minibatch: 5}",
    "  algorithm: A2C\n  a2c_config: {rollout_step: 0}",
    "  algorithm: A2C\n  sac_config: {learning_rate: 0.01}",
    "  ppo_config: {clip: 0.1}",
    "  algorithm: PPO\n  replay_config: {capacity: 10}",
    "  algorithm: ACER\n  acer_config: {gae_lambda: 0.9, num_epoch: 3}",
    "  algorithm: TD3\n  nn_config: {policy: {log_std: tanh}}",
    "  algorithm: ACER\n  acer_config: {capacity: 100, rollout_step: 30, start_step: 200}",
    "  algorithm: ACER\n  replay_config: {capacity: 100}\n  sac_config: {replay_ratio: 2, use_rnd: true}",
    "  sac_config: {algorithm: SAC}",
    "  sac_config: {seed: -1}",
    "  sac_config:\n    n_step: 2\n    n_step: 2",
    "  base_config: {n_envs: 2}\n  base_config: {n_envs: 2}",
    "  sac_config:\n\t  n_step: 3",
    "  sac_config: {n_step: 3",
    "  sac_config: !!python/name:os.system x",
    "  sac_config: *nothing",
    "  env: &a [*a]",
    "  sac_config: {<<: 3}",
    "  sac_config: {[1]: 3}",
    "  inherited: [3]",
    "  inherited: defalt",
    "  sac_config: {ensemble_q_sample: 3}",
    "  sac_config: {use_target_network: false, clip_epsilon: 0.2}",
    "  sac_config: {use_target_network: false, siamese: BYOL}",
    "  sac_config: {value_head: quantile, clip_epsilon: 0.2}",
    "  sac_config: {value_head: quantile, quantile_num: 2}",
    "  sac_config: {quantile_num: 5}",
    "  sac_config: {categorical_range: 9}",
    "  sac_config: {value_head: categorical, reward_scaling: false}",
    "  sac_config: {v_rho: 0.5}",
    "  sac_config: {action_noise: [0.5, 0.1]}",
    "  sac_config: {action_noise: [0, 1.5]}",
    "  sac_config: {use_add_with_td: true, use_priority: false}",
    "  sac_config: {use_add_with_td: true, use_replay_buffer: false}",
    "  sac_config: {learning_rate_schedule: cosine, learning_rate_end: -0.1}",
    "  algorithm: PPO\n  sac_config: {action_noise: [0, 1], learning_rate_end: 0.5}",
    "  replay_config: {td_error_min: 20}",
    "  replay_config: {sampler: recent}",
    "  replay_config: {sampler: 'recent:Recent'}",
    "  replay_config: {sampler: 'recent:Recent'}\n  demonstrations: {path: a.npz, offline: true}\n"
    "  sac_config: {use_priority: false, use_replay_buffer: false}",
    "  algorithm: 'hill:HILL'\n  behavioral_cloning: {strength: 1}",
    "  replay_config: {her_ratio: 1.5}",
    "  replay_config: {her_ratio: often}",
    "  replay_config: {her_ratio: 0.8}\n  sac_config: {use_replay_buffer: false}\n"
    "  demonstrations: {path: a.npz, offline: true}",
    "  algorithm: PPO\n  replay_config: {her_ratio: 0.8}",
    "  replay_config: {capacity: 100}",
    "  replay_config: {capacity: 256}",
    "  replay_config: {capacity: 1e9}",
    "  sac_config: {n_step: 524288}",
    "  sac_config: {burn_in_step: 524288, seq_encoder: RNN}",
    "  sac_config: {burn_in_step: 4, learn_step: 2}",
    "  sac_config: {learn_step: 2}",
    "  sac_config: {refresh_carry: true, seq_encoder: ATTN, burn_in_step: 2}",
    "  sac_config: {seq_encoder: ATTN, burn_in_step: 0, learn_step: 9}",
    "  sac_config: {n_step: 1:30}",
    "  base_config: {workers: 2}",
    "  ma_config: 3",
    "  ma_config: {B: 3}",
    "  ma_config: {B: {base_config: {n_envs: 2}}}",
    "  sac_config: {gamma: 1.5, burn_in_step: 3}",
    "  sac_config: {v_rho: 0.5}\n  replay_config: {capacity: 100}",
    "  base_config: {workers: 2, max_iter: few}\n  replay_config: {td_error_min: 2, td_error_max: 1}",
    "  sac_config: {zzzzzz: 1, v_rho: 0.5}",
    "  sac_config: {seq_encoder: GRU, burn_in_step: 3}",
    "  sac_config: {seq_encodr: RNN, burn_in_step: 3}",
    "  base_config: {seq_encoder: RNN}\n  sac_config: {burn_in_step: 3}",
    "  sac_confg: {batch_size: 64}\n  replay_config: {capacity: 100}",
    "  sac_config: 64\n  replay_config: {capacity: 100}",
    "  sac_config: {n_step: 0}",
    '  sac_config: {n_step: "-1"}',
    "  sac_config: {tau: 0}",
    "  sac_config: {n_step: .inf}",
    "  sac_config: {n_step: [1]}",
    "  sac_config: {siamese: SIM}",
    "  sac_config: {threads: 0}",
    "  sac_config: {action_noise: [0.1]}",
    "  sac_config: {action_noise: 0.1}",
    "  checkpoint_config: {milestones: [1e3, x]}",
    '  base_config: {name: ""}',
    "  nn_config: {rep: conv}",
    "  base_config: {max_step: 0}",
    "  base_config: {env_type: gym}",
    "  base_config: {env_type: Gymm}",
    "  base_config: {on_non_finite: Drop}",
    "  sac_config: {seq_encoder: attention}",
    "  sac_config: {seq_encoder: rnn}",
    "  sac_config: {siamese: none}",
    "  sac_config: {seed: None}",
    "  sac_config: {learning_rate_schedule: liner}",
    "  checkpoint_config: {replay: Always}",
    "  algorithm: Acktr",
    "  sac_config: {siamese: 3}",
    "  sac_config: {n_step: none}",
    "  sac_config:\n    random_params: {learning_rte: {in: [1]}}",
    "  sac_config:\n    random_params: {seed: {in: [1]}}",
    "  sac_config:\n    random_params: {tau: 3}",
    "  sac_config:\n    random_params: {tau: {}}",
    "  sac_config:\n    random_params: {tau: {mean: 3}}",
    "  sac_config:\n    random_params: {tau: {in: []}}",
    "  sac_config:\n    random_params: {tau: {in: [0.1], std: 1}}",
    "  sac_config:\n    random_params: {tau: {std: -1}}",
    "  sac_config:\n    random_params: {tau: {std: .inf}}",
    "  sac_config:\n    random_params: {tau: {truncated: [2, 1]}}",
    "  sac_config:\n    random_params: {tau: {truncated: [1]}}",
    "  sac_config:\n    random_params: {tau: {truncated: 1}}",
    "  sac_config:\n    random_params: {n_step: {truncated: [1.2, 1.8]}}",
    "  sac_config:\n    random_params: {nn: {std: 1}}",
    "  sac_config:\n    random_params: 3",
    "  sac_config:\n    random_params: {tau: {in: [7]}}",
    "  base_config: {wrappers: [5]}",
    "  base_config: {wrappers: [{ClipReward: 5}]}",
    "  base_config: {wrappers: [{TimeLimit: [5]}]}",
    "  base_config: {wrappers: [{ClipReward: null, TimeLimit: null}]}",
    "  base_config: {wrappers: [{}]}",
    "  base_config: {wrappers: ClipReward}",
    "  base_config: {wrappers: {ClipReward: null}}",
    "  environment_parameters: 3",
    "  environment_parameters:\n    a: much\n    b: true\n    c: null\n    d: {}\n"
    "    d1: {sampler_parameters: {min_value: 1, max_value: 2}}\n    d2: {value: {gaussian: [0, 1]}}\n"
    "    d3: {curriculum: [{name: a, value: 1, completion_criteria: {threshold: 1, "
    "min_lesson_length: 100000000000000000000}}, {name: b, value: 2}]}\n"
    "    e: {sampler_type: unifrom}\n    f: {sampler_type: uniform}\n"
    "    g: {sampler_type: uniform, sampler_parameters: {min_value: 2, max_value: 1}}\n"
    "    h:\n      sampler_type: gaussian\n      sampler_parameters:\n        mean: 1\n"
    "        st_dev: -1\n        var: 1\n"
    "    i: {sampler_type: multirangeuniform, sampler_parameters: {intervals: [[1, 2], [3]]}}\n"
    "    j: {sampler_type: multirangeuniform, sampler_parameters: {intervals: [[2, 1]]}}\n"
    "    k: {sampler_type: multirangeuniform, sampler_parameters: {intervals: []}}\n"
    "    l: {gaussian: [1, 0.1]}",
    "  base_config: {max_step: -1, stop_at_return: 3}\n  eval_config: {lesson: current}\n"
    "  reset_config: {f: 1}\n  environment_parameters:\n"
    "    a: {curriculum: [{name: x, value: 1}, {name: y, value: 1}]}\n"
    "    b: {curriculum: [{name: x, value: 1, completion_criteria: {threshold: 1}}]}\n"
    "    c: {curriculum: [{name: x, value: 1, completion_criteria: {threshold: 1}}, {name: x, value: 1}]}\n"
    "    d:\n      curriculum:\n"
    "      - name: x\n        value: 1\n"
    "        completion_criteria: {measure: rewards, threshold: 1, min_lesson_length: 0}\n"
    "      - {name: y, value: {sampler_type: uniform, sampler_parameters: {min_value: 2, max_value: 1}}}\n"
    "    e: {curriculum: [{name: x, value: 1, completion_criteria: {measure: progress, threshold: 1}}]}\n"
    "    e1: {value: 1, set: m}\n    e2: {value: 1, set: l}\n    e3: {value: 2, set: m}\n"
    "    f: {curriculum: [{name: x, value: 1, completion_criteria: {measure: progress, threshold: 0.5}}, "
    "{name: y, value: 1}]}\n"
    "    g: {curriculum: [{name: x, value: 1, completion_criteria: {measure: elo, threshold: 1300}}, "
    "{name: y, value: 1}]}",
)
"""Lines below ``default:``."""

FILES = (
    "3\n",
    "default: 3\n",
    "just words\n",
    "base_config: {env_type: GYM}\nfast: {}\n",
    "fast: {}\n",
    "default: {inherited: a}\na: {inherited: b}\nb: {inherited: [c]}\nc: {inherited: a}\n",
    "default:\n  inherited: sed\n",
    "default: {reset_config: {mass: {uniform: [2, 1]}, size: big}, base_config: {env_type: UNITY}}\n",
    "default: {environment_parameters: {mass: {multirange: [[1, 2], [4, 5]]}, größe: 1, size: 1e39, "
    "g: {value: 1, set: g}}, base_config: {env_type: UNITY, env_name: x}}\n",
    "default: {base_config: {env_type: UNITY, workers: 1, unity_args: {editor: true}, n_envs: 2}}\n",
)
"""Whole files."""

LOADS: Sequence[tuple[str, dict[str, object]]] = (
    ("", {"config": "vanila"}),
    ("vanilla: {}\n", {"config": "vanila"}),
    ("vanilla: {}\n", {"config": "config:vanila"}),
    ("", {"config": "sed"}),
    ("", {"env": "CartPole-v1", "config": "sed"}),
    ("", {"env": "CartPole-v1", "overrides": ["base_config.stop_at_return=3", "eval_config.per_step=-1"]}),
    ("", {"overrides": ["base_config.preset=crss"]}),
    ("", {"overrides": ["base_config.preset=seed"]}),
    ("", {"overrides": ["base_config.preset=lean", "algorithm=PPO"]}),
    ("", {"overrides": ["algorithm=PPO", "sac_config.tau=0.1"]}),
    ("ppo: {algorithm: PPO}\n", {"config": "ppo", "flags": {"algorithm": "SAC"}}),
    ("ppo: {algorithm: PPO}\n", {"flags": {"algorithm": "ppo"}}),
    ("", {"overrides": ["a=1", "sac_config", "=3", "sac_config.=3", "sac_config.n_step=[1"]}),
    ("", {"overrides": ["sac_config.n_step=1: 2", "sac_config.lr=1"], "flags": {"base_config.n_envs": 0}}),
    ("", {"seed": -3}),
    ("", {"env": "nothing/at/all", "overrides": ["sac_config.n_stp=2"]}),
)
"""Texts behind the usual section, with arguments of `load_config`."""

COMMANDS = (
    "x --max_itr 3",
    "x --agents 0",
    "x --agents two",
    "x --repeat 1.5",
    "x --seed -1",
    "x --ckpt inf",
    "x --ckpt Best",
    "x --max_iter 0",
    "x --device tpu",
    "x --env_args [1",
    "x --env_args [1]",
    "x --env_args word",
    "",
    "x y",
    "x --algo ppo",
    "x --total_timesteps 100",
    "x --num-envs",
    "x --max-step 3",
    "x --age 3",
    "x --resume --run",
    "x --run --eval 2",
    "x --video --render",
    "x --ckpt 5",
    "x --check --dry_run",
    "x --report a --eval 3",
    "x --repeat 2 --resume",
    "x --record x.npz --video",
    "x --lesson near",
    "x --record x.txt --run",
    "x --eval 0",
    "x --report",
    "x --export a.zip --trust",
    "x -n a.zip",
    "x --replace",
    "x --export a.zip -c b",
)
"""Words behind ``main.py``."""

COMMANDS_DS = (
    "task",
    "task lerner",
    "task actor --render --seed=0 --num_actors=2",
    "task learner --num_actors=2",
    "task cluster",
    "task cluster --num_actors=2 --learner_host=h --ckpt=5",
    "task evolver",
    "task evolver --num_learners=1",
)
"""Words behind ``main_ds.py``."""

ENVIRONMENTS = (
    "own_env.py",
    "absent.py:Own",
    "absent_module:Own-v0",
    "cart_pole",
    "CartPole",
    "cartpole-v7",
    "LunarLander-v2",
    "HalfCheeta",
    "BreakoutNoFrameskip-v4",
    "MiniGrid-Empty-5x5-v0",
    "popgym-RepeatPreviousEasy-v0",
    "HopperBulletEnv-v0",
    "FetchReach-v4",
    "qqqqqq",
    ":X",
    "x" * 300,
    "gym/pendulm",
    "gym",
    "toy/quue",
    "hoper",
    "cartpole",
    "ALE/Pong-v5",
    "envs/gym/task/config.yaml",
)
"""Names that are no environment."""


def messages() -> Iterator[tuple[str, str]]:
    """Yield each name and its message, without what differs from one machine to another."""
    own = {name: spec for name, spec in gym.registry.items() if str(spec.entry_point).startswith("gymnasium")}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stack.callback(os.chdir, Path.cwd())
        os.chdir(folder)
        stack.enter_context(patch.dict(gym.registry, own, clear=True))
        stack.enter_context(patch.object(sys, "argv", ["main.py"]))
        stack.enter_context(patch.object(sys, "path", list(sys.path)))  # names of modules add the folder
        for name, text in _all():
            yield name, text.replace(str(ROOT), "ROOT").replace(os.path.realpath(folder), "HERE")


def _all() -> Iterator[tuple[str, str]]:
    file = Path("envs/gym/task/config.yaml")
    file.parent.mkdir(parents=True)
    Path("own_env.py").touch()
    for text in SECTIONS:
        file.write_text("default:\n" + text + "\n")
        yield text, _refusal(lambda: load_config("gym/task"))
    for text in FILES:
        file.write_text(text)
        yield text, _refusal(lambda: load_config("gym/task", require_runnable=True))
    for behind, given in LOADS:
        file.write_text(TASK + behind)
        yield f"{behind}{given}", _refusal(lambda given=given: load_config(**{"env": "gym/task", **given}))
    file.write_text("sac_config: {n_stp: 3}\ninherited: x\n")
    yield "of a run", _refusal(lambda: load_config_file(file, require_runnable=True))
    file.write_bytes(b"\xff\xfe\x00")
    yield "no text", _refusal(lambda: load_config("gym/task"))
    for words in COMMANDS:
        yield f"main.py {words}", _refusal(lambda words=words: parse_args(words.split()))
    for words in COMMANDS_DS:
        yield f"main_ds.py {words}", _refusal(lambda words=words: parse_distributed(words.split()))
    for name in ENVIRONMENTS:
        yield f"ENV {name}", _refusal(lambda name=name: load_config(name))


def _refusal(call: Callable[[], object]) -> str:
    """Return what a call is refused with, as it is printed."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            call()
    except ConfigError as error:
        return str(error)
    except SystemExit:
        return said.getvalue().rstrip()
    return "ACCEPTED"
