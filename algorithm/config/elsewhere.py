"""Flags, keys and commands of other libraries, and a command line with them in our words."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from algorithm.agents.registry import FAMILIES, misplaced
from algorithm.config.errors import did_you_mean
from algorithm.core.extras import extra
from algorithm.core.program import as_typed
from algorithm.core.reading import read_text

REFERENCE = Path(__file__).parents[1] / "default_config.yaml"
"""Every key, as :mod:`algorithm.config.reference` writes them."""

COMMANDS: Mapping[str, Sequence[str]] = {
    "train": (),
    "learn": (),
    "run": ("--run",),
    "watch": ("--watch",),
    "enjoy": ("--watch",),
    "play": ("--watch",),
    "eval": ("--eval", "10"),
    "evaluate": ("--eval", "10"),
    "resume": ("--resume",),
    "inference": ("--watch",),
    "check": ("--check",),
    "list": ("--list",),
    "capture_video": ("-o", "eval_config.video=true"),
    "record_video": ("-o", "eval_config.video=true"),
    "no_cuda": ("--device", "cpu"),
}
"""Word before or behind an environment, or flag without a value -> the flags that say it here.

Flags are written with underscores and without dashes.
"""

FLAGS: Mapping[str, str] = {
    **dict.fromkeys(("env", "env_id", "env_name", "task", "gym_id"), "{}"),
    **dict.fromkeys(("total_timesteps", "n_timesteps", "timesteps", "max_steps"), "--max_step {}"),
    **dict.fromkeys(("total_steps", "num_env_steps", "steps"), "--max_step {}"),
    **dict.fromkeys(("num_envs", "n_envs", "num_workers", "num_processes"), "--envs {}"),
    **dict.fromkeys(("run_id", "exp_name", "run_name"), "-n {}"),
    **dict.fromkeys(("log_dir", "logdir", "save_dir", "log_folder", "output_dir"), "--directory {}"),
}
"""Flag with a value, ``{}`` -> ours."""

_UNITY = "-o base_config.unity_args"
_RESTARTS = "base_config.env_restarts counts over the whole run, so {} is left out"

MLAGENTS: Mapping[str, str] = {
    "env": f"{_UNITY}.build_path.{sys.platform}={{}}",
    "run_id": "-n {}",
    "resume": "--resume",
    "load": "--resume",
    "initialize_from": "--init_from {}",
    "force": "an existing run is never overwritten: choose another name with -n",
    "train": "training is the default",
    "inference": "--watch",
    "deterministic": "evaluations never sample; for --run use --disable_sample",
    "seed": "--seed {}",
    "num_envs": "--envs {}",
    "num_areas": f"{_UNITY}.num_areas={{}}",
    "base_port": "--port {}",
    "env_args": "--env_args {}",
    "timeout_wait": "-o base_config.env_timeout={}",
    "max_lifetime_restarts": "-o base_config.env_restarts={}",
    "restarts_rate_limit_n": _RESTARTS,
    "restarts_rate_limit_period_s": _RESTARTS,
    "results_dir": "--directory {}",
    "debug": "--debug",
    "no_graphics": f"{_UNITY}.no_graphics=true",
    "no_graphics_monitor": "base_config.unity_args.no_graphics applies to all players",
    **{
        name: f"{_UNITY}.{name}={{}}"
        for name in (
            *("width", "height", "quality_level"),
            *("time_scale", "target_frame_rate", "capture_frame_rate"),
        )
    },
    "torch_device": "--device {}",
    "torch": "always PyTorch",
    "tensorflow": "always PyTorch",
    "cpu": "--device cpu",
    "multi_gpu": "a run uses one GPU",
    "curriculum": "translate it with --from_mlagents {}",
    "sampler": "translate it with --from_mlagents {}",
    "lesson": "training starts with the first lesson, so {} is left out",
    "keep_checkpoints": "-o checkpoint_config.keep={}",
    "save_freq": "-o sac_config.save_model_per_step={}",
    "docker_target_name": "start the container yourself, so {} is left out (docs/distributed.md)",
}
"""Flag of ``mlagents-learn`` since 0.12 -> ours, ``{}`` for its value, or why there is none."""

_TRAINER = re.compile(r"^\ufeff?\s*(behaviors|default_settings|trainer|trainer_type)\s*:", re.MULTILINE)

ALGORITHMS: Mapping[str, str] = {
    **{name.lower(): f"--algorithm {name}" for name in FAMILIES},
    **{"tqc": "--preset tqc", "crossq": "--preset cross", "droq": "--preset droq"},
}
"""Value of ``--algo`` -> our flag."""

KEYS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("lr", "policy_lr", "q_lr", "actor_lr", "critic_lr"), ("learning_rate",)),
    **dict.fromkeys(("total_timesteps", "n_timesteps", "max_steps"), ("max_step",)),
    **dict.fromkeys(("learning_starts", "buffer_init_steps", "random_steps"), ("start_step",)),
    **dict.fromkeys(("buffer_size", "memory_size", "replay_size"), ("capacity",)),
    **dict.fromkeys(("n_critics", "num_critics"), ("ensemble_q_num",)),
    **dict.fromkeys(("target_update_interval", "target_network_frequency"), ("update_target_per_step",)),
    **dict.fromkeys(("policy_frequency", "policy_delay"), ("policy_update_per_step",)),
    **dict.fromkeys(("n_steps", "num_steps"), ("rollout_step",)),
    **dict.fromkeys(("n_epochs", "update_epochs"), ("num_epoch",)),
    **dict.fromkeys(("clip_range", "clip_coef", "clip_param", "clip_ratio"), ("clip",)),
    **dict.fromkeys(("normalize_advantage", "norm_adv"), ("normalise_advantage",)),
    "num_minibatches": ("num_minibatch",),
    "vf_coef": ("value_coef",),
    "lambd": ("gae_lambda",),
    "eval_freq": ("per_step",),
    "n_eval_episodes": ("episodes",),
    "gradient_steps": ("replay_ratio",),
    "algo": ("algorithm",),
    "num_envs": ("n_envs",),
    "env_id": ("env_name",),
}
"""Key of another library -> ours that mean the same, by their last name."""

RELATED: Mapping[str, Sequence[str]] = {
    "ent_coef": ("entropy_coef", "init_log_alpha"),
    "target_entropy": ("target_c_alpha", "target_d_alpha"),
    "train_freq": ("replay_ratio",),
    "clip_range_vf": ("clip_value",),
    "normalize": ("use_normalization",),
}
"""The same where the value is another one."""


ARGUMENTS: Mapping[str, str] = {
    "policy_kwargs": "overrides={'nn_config.policy': {'hidden': [64, 64], 'activation': 'tanh'}, "
    "'nn_config.q': {'hidden': [64, 64]}} (docs/networks.md)",
    "callback": "callbacks=[…] of train or learn",
    "callbacks": "callbacks=[…] of train or learn",
    "verbose": "quiet=True, or leave it out",
    "progress_bar": "quiet=False, or leave it out",
    "log_interval": "write_summary_per_step=N",
    "tensorboard_log": "directory='FOLDER': TensorBoard's files are in FOLDER/TASK/NAME/log",
    "tb_log_name": "name='NAME' where the run is started",
    "env": "the environment as the first argument, or as eval_env=…",
}
"""Argument of another library's functions, which is no key → ours."""


def our_names(key: str) -> Sequence[str]:
    """Return the last names of our keys for what another library calls ``key``; none if it is not known."""
    name = _plain(key)
    return KEYS.get(name) or RELATED.get(name, ())


def remedy(
    argv: Sequence[str], unknown: Sequence[str], env: str | None, flags: Iterable[str], program: str
) -> str | None:
    """Return what to write in place of a command line that cannot be read; None if that is not known.

    unknown: the words that the parser left; env: what it took for the environment; flags: all that there are
    program: first words of the command
    """
    by_name = {_plain(flag): flag for flag in flags}
    argv, of_build = _before_env_args(argv)
    left = [_plain(word) for word in unknown if word.startswith("-") and word in argv]
    notes: list[str] = []
    words = None if by_name.keys() & left else _translated(argv, unknown, env, notes)
    if words is not None:
        line = f"write {program} {shlex.join([*words, *of_build])}"
        if words and (first := translation(words[0])):
            words[0] = first[0]
            line = f"write {program} {shlex.join(first)}, then {program} {shlex.join([*words, *of_build])}"
        return "; ".join([line, *notes])
    if "algo" in left:
        return f"write one of {', '.join(ALGORITHMS.values())}"
    close = [did_you_mean(name, by_name) for name in left if name not in FLAGS]
    return " ".join(f"did you mean {by_name[name]}?" for name in close if name) or None


def translation(file: str) -> list[str] | None:
    """Return the words that make a task of a trainer file of ML-Agents, the task first; None for another."""
    path = Path(file)
    try:
        is_one = path.suffix.lower() in (".yaml", ".yml") and _TRAINER.search(read_text(path, follow=True))
    except (OSError, ValueError):
        return None
    return [f"unity/{path.stem}", "--from_mlagents", file] if is_one else None


def translate_first(file: str, task: str = "") -> str:
    """Return the command that makes a task of a trainer file of ML-Agents; empty if it is none."""
    if not (words := translation(file)):
        return ""
    return f"translate it first: {as_typed('python main.py')} {shlex.join([task or words[0], *words[1:]])}"


def _before_env_args(argv: Sequence[str]) -> tuple[Sequence[str], list[str]]:
    """Return the words before ``--env-args`` of ML-Agents, and ours for all behind it."""
    if "--env-args" not in argv:
        return argv, []
    from algorithm.config.yaml_io import inline

    at = argv.index("--env-args")
    try:
        return argv[:at], ["--env_args", inline(extra("arguments_of")(argv[at + 1 :]))]
    except ValueError:
        return argv, []


def _translated(
    argv: Sequence[str], unknown: Collection[str], env: str | None, notes: list[str]
) -> list[str] | None:
    """Return the command line in our words, the environment first; None where a word has no counterpart.

    notes: takes a sentence for each flag of ML-Agents that has none
    """
    named = re.search(r"(?:algorithm|--algo)[= ](\w+)", " ".join(argv))
    algorithm = named[1].lower() if named else "sac"
    environments: list[str] = []
    words: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if _plain(word) in COMMANDS and (word == env or word in unknown):
            words += COMMANDS[_plain(word)]
        elif word in unknown and word.startswith("-"):
            ours, (flag, _, value) = _ours(_plain(word), algorithm), word.partition("=")
            if ours is None:
                return None
            has_value = ours != MLAGENTS.get(_plain(word)) or "{}" in ours
            if has_value and not (value or rest):
                return None
            if has_value and not value:
                value = rest.pop(0)
            parts = [part.replace("{}", value) for part in ours.split()]
            if _plain(word) == "env" and (environments or env in rest):  # the build of a task
                parts = MLAGENTS["env"].format(value).split()
            if not ours.startswith(("-", "{}")):
                notes.append(f"{flag}: {ours.format(value)}")
            else:
                (words if parts[0].startswith("-") else environments).extend(parts)
        else:
            (environments if word == env or word in unknown else words).append(word)
    if "--watch" in words and "--resume" in words:  # who watches loads a run, too
        words.remove("--resume")
    return [*environments, *words] if len(environments) == 1 or words == ["--list"] else None


def _ours(name: str, algorithm: str) -> str | None:
    """Return what a flag of another library, or the name of a key, is on our command line; None if nothing.

    ``{}`` in it stands for the value.
    """
    if name == "algo":
        return ALGORITHMS.get(algorithm)
    if name in FLAGS or name in MLAGENTS:
        return FLAGS.get(name) or MLAGENTS[name]
    names = KEYS.get(name, (name,))
    if not re.search(rf"^ +(# )?({'|'.join(map(re.escape, names))}):", REFERENCE.read_text("utf-8"), re.M):
        return None  # a typo is answered at once: the schema takes half a second
    from algorithm.config.schema import fields

    family = algorithm.upper() if algorithm.upper() in FAMILIES else "SAC"
    paths = [path for path, _ in fields() if path[-1] in names and len(path) == 2]
    path = next((".".join(path) for path in paths if misplaced(family, *path) is None), None)
    return path and f"-o {path}={{}}"


def _plain(word: str) -> str:
    """Return a flag's name without dashes and value, with underscores."""
    return word.lstrip("-").partition("=")[0].replace("-", "_").lower()
