"""The model card of an export: ``README.md`` with the front matter that the Hugging Face hub reads."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import yaml

from algorithm.app.report.facts import Facts, lookup, number, space_rows
from algorithm.app.report.settings import differences
from algorithm.config.errors import ConfigError
from algorithm.config.loader import LoadedConfig
from algorithm.config.locate import find_env
from algorithm.core.program import VERSION
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.wording import duration, plus_minus
from algorithm.extras.sharing.trust import unlisted
from algorithm.run.evaluation.statistics import INTERVAL, mean_interval
from algorithm.store.checkpoints.manifest import Entry

if TYPE_CHECKING:
    from jinja2 import Template

LIBRARY = "advanced-soft-actor-critic"


@dataclass(frozen=True)
class CardEvaluation:
    """An evaluation of the exported checkpoint. how: when it was made; half_width: of the 95 % interval."""

    behaviour: str
    how: str
    mean: float
    half_width: float
    episodes: int

    @property
    def text(self) -> str:
        """The mean with its 95 % interval."""
        return plus_minus(self.mean, self.half_width)


@dataclass(frozen=True, kw_only=True)
class CardContent:
    """Content of a card.

    facts:   of the run
    loaded:  the configuration in the export
    step:    of the checkpoint
    later:   content of ``evaluation.json``, empty if it is of another checkpoint
    weights: name -> entry of each file of networks
    code:    names of files with code
    picture: name of the picture of the learning curve; empty without one
    source:  path or address of the export, as for ``asac.load``
    """

    facts: Facts
    loaded: LoadedConfig
    step: int
    later: Mapping[str, object]
    weights: Mapping[str, Entry]
    code: Sequence[str]
    picture: str
    source: str

    @property
    def env_id(self) -> str:
        """Name of the environment, without its module or file."""
        return self.loaded.config.base_config.env_name.rpartition(":")[2]

    @property
    def algorithms(self) -> str:
        """Names of the behaviours' algorithms, each once."""
        names = [self.loaded.for_behaviour(name).algorithm for name in self.facts.behaviours]
        return ", ".join(dict.fromkeys(names))

    @property
    def trusted(self) -> list[str]:
        """Files of code, and keys that may name code: what needs ``--trust``."""
        return [*self.code, *unlisted(self.loaded)]

    def measured(self) -> list[CardEvaluation]:
        """Return the evaluations of this checkpoint: while training, and later by ``--eval``."""
        evaluations = []
        episodes = self.loaded.config.eval_config.episodes
        for behaviour in self.facts.behaviours:
            while_training = [score for score in self.facts.evaluations(behaviour) if score.step == self.step]
            evaluations += [
                CardEvaluation(behaviour, "while training", score.mean, score.half_width, episodes)
                for score in while_training[-1:]
            ]
            returns = lookup(self.later, "behaviours", behaviour, "returns")
            if isinstance(returns, list) and returns and all(number(value) is not None for value in returns):
                interval, many = mean_interval(returns), len(returns)
                how = f"`--eval {many}`"
                evaluations.append(CardEvaluation(behaviour, how, interval.mean, interval.half_width, many))
        return evaluations


def task_of(loaded: LoadedConfig) -> str:
    """Return the task's name for the command line: its label if there is one, else the environment."""
    try:
        find_env(loaded.env_label)
    except ConfigError:
        return loaded.config.base_config.env_name
    return loaded.env_label


def card(shared: CardContent) -> str:
    """Return the whole card as Markdown."""
    facts, measured = shared.facts, shared.measured()
    known = facts.manifest.get("versions")
    versions = {"python": facts.manifest.get("python"), **(known if isinstance(known, Mapping) else {})}
    return _template().render(
        front_matter=_front_matter(shared, measured),
        shared=shared,
        facts=facts,
        measured=measured,
        interval=INTERVAL,
        env=shlex.quote(task_of(shared.loaded)),
        source=shlex.quote(shared.source),
        spaces=space_rows(facts.specs),
        source_text=json.dumps(shared.source),
        behaviour_text=json.dumps(facts.behaviours[0]),
        unity=shared.loaded.config.base_config.kind.player,
        state=facts.state.partition(",")[0],  # without the process that trains it
        taken=duration(facts.seconds) if facts.seconds else "",
        settings=[(key, value, default) for key, (value, default) in differences([shared.loaded]).items()],
        versions={LIBRARY: f"{VERSION}, of this export", **versions},
    )


@lru_cache(maxsize=1)
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("algorithm.extras.sharing"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["cell"] = lambda text: text.replace("|", "&#124;")  # of a table
    templates.filters["plain"] = _plain
    return templates.get_template("card.jinja")


def _plain(text: object) -> str:
    """Return text on one line, escaped so that Markdown shows it as it is."""
    return re.sub(r"([\\`*\[\]<>|&])", r"\\\1", " ".join(str(text).split()))


def _front_matter(shared: CardContent, measured: Sequence[CardEvaluation]) -> str:
    """Return the YAML that the hub reads, without the lines ``---`` around it.

    ``model-index`` has one evaluation for each behaviour, that of the most episodes; it is omitted if there
    is none.
    """
    matter: dict[str, object] = {
        "library_name": LIBRARY,
        "tags": ["reinforcement-learning", shared.env_id],
    }
    most = {each.behaviour: each for each in sorted(measured, key=lambda evaluation: evaluation.episodes)}
    if results := [_result(shared, most[name]) for name in shared.facts.behaviours if name in most]:
        matter["model-index"] = [{"name": shared.algorithms, "results": results}]
    return str(yaml.safe_dump(matter, sort_keys=False, allow_unicode=True, width=100))


def _result(shared: CardContent, evaluation: CardEvaluation) -> dict[str, object]:
    """Return an evaluation in the format of the hub's ``model-index``."""
    spread = f" +/- {evaluation.half_width:.2f}" if math.isfinite(evaluation.half_width) else ""
    dataset = {"type": shared.env_id, "name": shared.env_id}
    if evaluation.behaviour != DEFAULT_BEHAVIOUR:
        dataset["config"] = evaluation.behaviour
    metric = {
        "type": "mean_reward",
        "value": f"{evaluation.mean:.2f}{spread}",
        "name": f"mean reward with its {INTERVAL} interval",
        "args": {"episodes": evaluation.episodes},
    }
    task = {"type": "reinforcement-learning", "name": "reinforcement learning"}
    return {"task": task, "dataset": dataset, "metrics": [metric]}
