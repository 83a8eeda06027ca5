"""``--from_mlagents``: what files of ML-Agents become, and what is said of those that cannot be."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from algorithm.extras.mlagents.translate import translate
from tests.extras.mlagents.mlagents_files import FILES
from tests.messages import refusal

SHOWN = ("3DBall_sac", "Hallway_ppo", "Pyramids_imitation", "WallJump_curriculum", "3DBall_randomize")
SHOWN += ("configuration", "SoccerTwos")
"""Files with all that the others have, too."""

WRONG = {
    "no such trainer": "behaviors: {A: {trainer_type: dqn}}",
    "values": "behaviors: {A: {trainer_type: sac, max_steps: many, hyperparameters: {init_entcoef: -1, "
    "learning_rate_schedule: cosine, steps_per_update: 0}, network_settings: {vis_encode_type: cnn}}}\n"
    "env_settings: {env_args: [3]}",
    "what others need": "behaviors: {A: {trainer_type: ppo, hyperparameters: {buffer_size: 0}}}",
    "before 0.18": "default: {trainer: sac}\nA: {batch_size: 8}",
    "of nothing": "# behaviors",
    "no mapping": "[1, 2]",
}
"""Name of a fault -> a file with it."""


def messages() -> Iterator[tuple[str, str]]:
    """Yield names of files and their translations, then what is wrong."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name in SHOWN:
                Path(f"{name}.yaml").write_text(FILES[name].replace("{demos}", "demos"), "utf-8")
                yield name, translate(Path(f"{name}.yaml"))
            for name, text in WRONG.items():
                Path("file.yaml").write_text(text, "utf-8")
                yield name, refusal(lambda: translate(Path("file.yaml")))
        finally:
            os.chdir(here)
