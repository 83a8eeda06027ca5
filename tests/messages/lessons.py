"""Parameters of environments on the start screen, and lessons that a command line names."""

from __future__ import annotations

from collections.abc import Iterator

from algorithm.app.parameters import named_lessons
from algorithm.env.parameters.config import read_parameters
from tests.messages import refusal

CRITERIA = {"completion_criteria": {"measure": "reward", "threshold": 0.5}}
PARAMETERS = read_parameters(
    {
        "wall": {"curriculum": [{"name": "low", "value": 0.5, **CRITERIA}, {"name": "high", "value": 2}]},
        "wind": {
            "curriculum": [
                {"name": "low", "value": 0, **CRITERIA},
                {
                    "name": "storm",
                    "value": {
                        "sampler_type": "uniform",
                        "sampler_parameters": {"min_value": 1, "max_value": 3},
                    },
                },
            ]
        },
        "gravity": {
            "sampler_type": "gaussian",
            "sampler_parameters": {"mean": -9.81, "st_dev": 0.1},
            "set": "model.opt.gravity.2",
        },
        "mass": {
            "sampler_type": "multirangeuniform",
            "sampler_parameters": {"intervals": [[1, 2], [4, 5.5]]},
        },
        "scale": 1,
    }
)


def messages() -> Iterator[tuple[str, str]]:
    for words in ("low", "wall=hgih", "strom", "gravity=low", "tall"):
        yield f"--lesson {words}", refusal(lambda words=words: named_lessons(PARAMETERS, words.split(",")))
    yield "--lesson without lessons", refusal(lambda: named_lessons({}, ["low"]))
