"""Worker: this project on pixels, trained by its command line, or its replay filled."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psutil
from harness import ROOT, our_version
from pixel_setting import BATCH_SIZE, EPISODE, STEPS_PER_UPDATE, pixel_arguments
from runs import count_trained, load_run_config
from setting import report

from algorithm.config import LoadedConfig, load_config
from algorithm.data import Segment
from algorithm.env.registry import make_vec_env
from algorithm.replay.buffer import PrioritizedSampler, ReplayBuffer, Sampler, UniformSampler
from algorithm.spec import AgentSpec

PRESET = "atari/pong"
PART = 100  # transitions of a segment


def load_preset() -> LoadedConfig:
    """Our task for Pong."""
    return load_config(PRESET)


def overrides(*, steps: int, start_step: int, capacity: int, threads: int = 1) -> tuple[str, ...]:
    """The preset with the update and the length of the comparison: the texts behind ``-o``."""
    keys = {
        "base_config.n_envs": 1,
        "base_config.workers": 0,
        "base_config.max_step": steps,
        "replay_config.capacity": capacity,
        "sac_config.start_step": start_step,
        "sac_config.batch_size": BATCH_SIZE,
        "sac_config.replay_ratio": 1 / STEPS_PER_UPDATE,
        "sac_config.threads": threads,
        "sac_config.write_summary_per_step": max(1, steps // 60),
        "sac_config.save_model_per_step": 10 * steps,  # only the one at the end
        "eval_config.per_step": steps,  # evaluation is not timed: one short one at the end
        "eval_config.episodes": 1,
        "checkpoint_config.best": "false",
    }
    return tuple(f"{key}={value}" for key, value in keys.items())


def train(arguments: Namespace, folder: Path) -> None:
    """Run the command line in a folder and answer with what it took."""
    command = [sys.executable, str(ROOT / "main.py"), PRESET, "--quiet", "--device=cpu", "--name=run"]
    size = {"steps": arguments.steps, "start_step": arguments.start_step, "capacity": arguments.capacity}
    plain = ("sac_config.n_step=1", "sac_config.use_priority=false")  # as their DQN
    changes = (*overrides(**size, threads=arguments.threads), *plain)
    command += [f"--seed={arguments.seed}", *(word for text in changes for word in ("-o", text))]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    run = folder / "models" / load_preset().env_label / "run"
    result = json.loads((run / "result.json").read_text())
    report(
        "advanced-soft-actor-critic",
        our_version(),
        threads=load_run_config(run).sac_config.threads,
        parameters=count_trained(run),
        updates=result["updates"],
        steps=result["steps"],
        seconds=result["seconds"],
        time=result["time"],
        peak_rss_mb=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    )


def preset_spec() -> AgentSpec:
    """What Pong's agent sees and does."""
    base = load_preset().config.base_config
    env = make_vec_env(
        base.env_type,
        base.env_name,
        env_args=base.env_args,
        n=1,
        seed_of=lambda *_: 0,
        wrappers=base.wrappers,
    )
    (spec,) = env.specs.values()
    env.close()
    return spec


def fill(spec: AgentSpec, sampler: Sampler, transitions: int) -> tuple[ReplayBuffer, float]:
    """A replay full of whole episodes, and the bytes that the process grew by for each transition."""
    rows = transitions + transitions // EPISODE
    segments = [
        _random_segment(spec, start, last=start + PART == EPISODE) for start in range(0, EPISODE, PART)
    ]
    before = psutil.Process().memory_info().rss
    replay = ReplayBuffer(spec, capacity=rows, batch_size=1, sampler=sampler)
    for _ in range(transitions // EPISODE):
        for segment in segments:
            replay.add(segment)
    return replay, (psutil.Process().memory_info().rss - before) / transitions


def _random_segment(spec: AgentSpec, start: int, *, last: bool) -> Segment:
    rng = np.random.default_rng(start)
    action, z, logp = spec.action.random(rng, spec.action.all_allowed(PART))
    truncated = np.zeros(PART, np.bool_)
    truncated[-1] = last
    return Segment(
        stream=0,
        start_step=start,
        obs={name: rng.integers(0, 256, (PART + 1, *shape), kind) for name, shape, kind in spec.obs.items()},
        action_mask=spec.action.all_allowed(PART + 1),
        carry=np.zeros((PART + 1, 0), np.float32),
        action=action,
        z=z,
        behaviour_logp=logp,
        reward=np.zeros(PART, np.float32),
        terminated=np.zeros(PART, np.bool_),
        truncated=truncated,
    )


def memory(arguments: Namespace) -> None:
    """Fill a replay and answer with what its transitions take."""
    samplers: dict[str, Sampler] = {"uniform": UniformSampler(), "prioritised": PrioritizedSampler()}
    transitions = arguments.capacity - arguments.capacity % EPISODE
    replay, measured = fill(preset_spec(), samplers[arguments.kind], transitions)
    report(
        "advanced-soft-actor-critic",
        our_version(),
        transitions=replay.num_transitions,
        computed_bytes=replay.nbytes / transitions,
        measured_bytes=measured,
    )


def main() -> None:
    """Measure what the command line asks for and print the answer."""
    arguments = pixel_arguments(__doc__).parse_args()
    if arguments.what == "memory":
        memory(arguments)
    else:
        with TemporaryDirectory() as folder:
            train(arguments, Path(folder))


if __name__ == "__main__":
    main()
