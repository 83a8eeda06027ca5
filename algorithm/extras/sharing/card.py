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
class Measured:
    """An evaluation of the checkpoint that is shared."""

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
class Shared:
    """Content of a card.

    facts:   of the run
    loaded:  its configuration as it is shared
    step:    of the checkpoint
    later:   content of the run's ``evaluation.json`` if that is one of this checkpoint, else empty
    weights: files of networks
    code:    files of code
    picture: of the curve; empty without one
    source:  what a reader gives to ``asac.load``
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
        """The environment's own name, without the module or file that has it."""
        return self.loaded.config.base_config.env_name.rpartition(":")[2]

    @property
    def algorithms(self) -> str:
        """The algorithm, or those of the behaviours."""
        names = [self.loaded.for_behaviour(name).algorithm for name in self.facts.behaviours]
        return ", ".join(dict.fromkeys(names))

    @property
    def trusted(self) -> list[str]:
        """All that a reader has to trust: code, and keys that may name code."""
        return [*self.code, *unlisted(self.loaded)]

    def measured(self) -> list[Measured]:
        """Return the evaluations of this checkpoint: while training, and later by ``--eval``."""
        found = []
        episodes = self.loaded.config.eval_config.episodes
        for behaviour in self.facts.behaviours:
            while_training = [one for one in self.facts.evaluations(behaviour) if one.step == self.step]
            found += [
                Measured(behaviour, "while training", one.mean, one.half_width, episodes)
                for one in while_training[-1:]
            ]
            returns = lookup(self.later, "behaviours", behaviour, "returns")
            if isinstance(returns, list) and returns and all(number(value) is not None for value in returns):
                interval, many = mean_interval(returns), len(returns)
                how = f"`--eval {many}`"
                found.append(Measured(behaviour, how, interval.mean, interval.half_width, many))
        return found


def task_of(loaded: LoadedConfig) -> str:
    """Return what a user types for the task: its label, or the environment's name where no task has it."""
    try:
        find_env(loaded.env_label)
    except ConfigError:
        return loaded.config.base_config.env_name
    return loaded.env_label


def card(shared: Shared) -> str:
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
        state=facts.state.partition(",")[0],  # who still trains it is nothing for others
        taken=duration(facts.seconds) if facts.seconds else "",
        settings=[(key, own, default) for key, (own, default) in differences([shared.loaded]).items()],
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
    """Return text of Markdown that is neither HTML, a link nor a picture, on one line."""
    return re.sub(r"([\\`*\[\]<>|&])", r"\\\1", " ".join(str(text).split()))


def _front_matter(shared: Shared, measured: Sequence[Measured]) -> str:
    """Return the YAML that the hub reads. Without an evaluation there is no ``model-index``."""
    matter: dict[str, object] = {
        "library_name": LIBRARY,
        "tags": ["reinforcement-learning", shared.env_id],
    }
    most = {one.behaviour: one for one in sorted(measured, key=lambda one: one.episodes)}
    if results := [_result(shared, most[name]) for name in shared.facts.behaviours if name in most]:
        matter["model-index"] = [{"name": shared.algorithms, "results": results}]
    return str(yaml.safe_dump(matter, sort_keys=False, allow_unicode=True, width=100))


def _result(shared: Shared, one: Measured) -> dict[str, object]:
    """Return an evaluation as the hub reads it."""
    spread = f" +/- {one.half_width:.2f}" if math.isfinite(one.half_width) else ""
    dataset = {"type": shared.env_id, "name": shared.env_id}
    if one.behaviour != DEFAULT_BEHAVIOUR:
        dataset["config"] = one.behaviour
    metric = {
        "type": "mean_reward",
        "value": f"{one.mean:.2f}{spread}",
        "name": f"mean reward with its {INTERVAL} interval",
        "args": {"episodes": one.episodes},
    }
    task = {"type": "reinforcement-learning", "name": "reinforcement learning"}
    return {"task": task, "dataset": dataset, "metrics": [metric]}
