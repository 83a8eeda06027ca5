"""``--train_reward``: a reward learned from recordings of successes and failures."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from algorithm.app.cli.train import TrainOptions
from algorithm.app.cli.train_flags import notices
from algorithm.app.console.output import open_console
from algorithm.config.loader import LoadedConfig
from algorithm.core.errors import StorageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.wording import counted
from algorithm.demos.sources import load_demonstrations
from algorithm.extras.robots.reward import learn_success
from algorithm.keys.demonstrations import DemoConfig
from algorithm.run.context import RunContext
from algorithm.run.experience.faults import Faults

_FILE = "reward.safetensors"


def train_reward(options: TrainOptions, loaded: LoadedConfig) -> int:
    """Train a classifier of success with recordings, and write it to the current folder.

    Raises UsageError for recordings that a training would refuse, and for too few successful episodes.
    """
    with ExitStack() as stack:
        console = stack.enter_context(open_console(quiet=options.quiet))
        for notice in notices(options, loaded.config):
            console.warn(notice)
        context = RunContext(loaded=loaded, device="cpu", faults=Faults(console), stack=stack)
        spec = context.env("evaluate").specs[DEFAULT_BEHAVIOUR]
        recorded = load_demonstrations(
            DemoConfig(path=options.train_reward), spec, DEFAULT_BEHAVIOUR, Path.cwd()
        )
        assert recorded is not None
        console.message(f"training with {counted(len(recorded.episodes), 'episode')}")
        success = learn_success(spec.obs, recorded.episodes, seed=loaded.seed)
        try:
            success.save(Path(_FILE))
        except OSError as error:
            raise StorageError.of(error, what="the learned reward cannot be written", where=_FILE) from error
        console.finish(
            [
                ("missed", f"{success.missed:.1%} of the successes in episodes that were held out"),
                ("mistaken", f"{success.mistaken:.1%} of these episodes would be ended wrongly"),
                ("threshold", f"{success.threshold:.3f}"),
                ("file", _FILE),
            ],
            [("use", f'wrappers: ["algorithm.extras.robots.reward:LearnedReward": {{file: {_FILE}}}]')],
            doubtful=success.missed + success.mistaken > 0.1,
        )
    return 0
