"""The model card of an export: ``README.md`` with the front matter that the Hugging Face hub reads."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import yaml

from algorithm.app.report.facts import Facts, lookup
from algorithm.app.report.settings import differences
from algorithm.app.sharing.trust import unlisted
from algorithm.config.errors import ConfigError
from algorithm.config.loader import LoadedConfig
from algorithm.config.locate import find_env
from algorithm.core.program import VERSION
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.wording import duration, plus_minus
from algorithm.evaluation.statistics import INTERVAL, mean_interval
from algorithm.runs.checkpoints.manifest import Entry

LIBRARY = "advanced-soft-actor-critic"


@dataclass(frozen=True)
class Measured:
    """An evaluation of the checkpoint that is shared."""

    behaviour: str
    how: str
    mean: float
    half_width: float
    episodes: int | None

    @property
    def text(self) -> str:
        """The mean with its 95 % interval."""
        return plus_minus(self.mean, self.half_width)


@dataclass(frozen=True, kw_only=True)
class Shared:
    """All that a card tells.

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
    def needs_trust(self) -> bool:
        """True if reading it needs ``trust=True``."""
        return bool(self.code or unlisted(self.loaded.config, self.loaded.behaviours.values()))

    def measured(self) -> list[Measured]:
        """Return the evaluations of this checkpoint: while training, and later by ``--eval``."""
        found = []
        for behaviour in self.facts.behaviours:
            while_training = [one for one in self.facts.evaluations(behaviour) if one.step == self.step]
            for one in while_training[-1:]:
                episodes = self.loaded.config.eval_config.episodes
                found.append(Measured(behaviour, "while training", one.mean, one.half_width, episodes))
            returns = lookup(self.later, "behaviours", behaviour, "returns")
            if isinstance(returns, list) and returns and all(_is_number(value) for value in returns):
                interval = mean_interval(returns)
                how = f"`--eval {len(returns)}`"
                found.append(Measured(behaviour, how, interval.mean, interval.half_width, len(returns)))
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
    sections = [_head(shared), _results(shared), _use(shared), _training(shared), _files(shared)]
    return "\n\n".join(["---\n" + front_matter(shared) + "---", *sections]) + "\n"


def front_matter(shared: Shared) -> str:
    """Return the YAML that the hub reads. Without an evaluation there is no ``model-index``."""
    matter: dict[str, object] = {
        "library_name": LIBRARY,
        "tags": ["reinforcement-learning", shared.env_id],
    }
    if results := [_result(shared, one) for one in _best_known(shared.measured())]:
        matter["model-index"] = [{"name": shared.algorithms, "results": results}]
    return str(yaml.safe_dump(matter, sort_keys=False, allow_unicode=True, width=100))


def _best_known(measured: Iterable[Measured]) -> list[Measured]:
    """Return the evaluation of most episodes of each behaviour."""
    best: dict[str, Measured] = {}
    for one in measured:
        known = best.get(one.behaviour)
        if known is None or (one.episodes or 0) >= (known.episodes or 0):
            best[one.behaviour] = one
    return list(best.values())


def _result(shared: Shared, one: Measured) -> dict[str, object]:
    spread = f" +/- {one.half_width:.2f}" if math.isfinite(one.half_width) else ""
    name = f"mean reward with its {INTERVAL} interval"
    metric: dict[str, object] = {"type": "mean_reward", "value": f"{one.mean:.2f}{spread}", "name": name}
    if one.episodes is not None:
        metric |= {"args": {"episodes": one.episodes}}
    dataset = {"type": shared.env_id, "name": shared.env_id}
    if one.behaviour != DEFAULT_BEHAVIOUR:
        dataset["config"] = one.behaviour
    task = {"type": "reinforcement-learning", "name": "reinforcement learning"}
    return {"task": task, "dataset": dataset, "metrics": [metric]}


def _head(shared: Shared) -> str:
    run = shared.facts.run
    text = (
        f"# {shared.algorithms} on {shared.env_id}\n\n"
        f"The policy of run `{run.name}` of the task `{run.env}` after {shared.step:,} steps, trained with "
        f"{shared.algorithms} by Advanced Soft Actor-Critic."
    )
    return text + (f"\n\n![Evaluation return]({shared.picture})" if shared.picture else "")


def _results(shared: Shared) -> str:
    measured = shared.measured()
    if not measured:
        return f"## Results\n\nThis checkpoint, of step {shared.step:,}, has not been evaluated."
    rows = [(one.behaviour, one.how, one.text, str(one.episodes or "unknown")) for one in measured]
    table = _table(("behaviour", "evaluation", "mean return", "episodes"), rows)
    note = f"± is half of {INTERVAL} interval of the mean. Evaluations take the deterministic policy."
    return f"## Results\n\n{table}\n\n{note}"


def _use(shared: Shared) -> str:
    flag = " --trust" if shared.needs_trust else ""
    env = shlex.quote(task_of(shared.loaded))
    command = f"```sh\nasac {env} -n {shlex.quote(shared.source)}{flag} --eval 10\n```"
    parts = ["## Use", *_warning(shared)]
    if shared.loaded.config.base_config.kind.gymnasium:
        trust = ", trust=True" if shared.needs_trust else ""
        parts.append(
            "```python\nimport asac\n\n"
            f'run = asac.Run("{shared.source}"{trust})\n'
            "policy, env = run.policy(), run.make_env()\n"
            "obs, _ = env.reset(seed=0)\n"
            "action, state = policy.act(obs)\n```"
        )
    return "\n\n".join([*parts, command])


def _warning(shared: Shared) -> list[str]:
    """Return the paragraph on code; none without any."""
    if not shared.needs_trust:
        return []
    named = [
        f"`{name}`"
        for name in (*shared.code, *unlisted(shared.loaded.config, shared.loaded.behaviours.values()))
    ]
    return [f"It needs code, which runs on your machine; look at it before you trust it: {', '.join(named)}."]


def _training(shared: Shared) -> str:
    facts = shared.facts
    steps = f"{facts.steps:,} steps" if facts.steps is not None else "an unknown number of steps"
    updates = "" if facts.updates is None else f", {facts.updates:,.0f} updates"
    state = facts.state.partition(",")[0]  # who still trains it is nothing for others
    taken = f", {duration(facts.seconds)}" if facts.seconds else ""
    rows = [
        (f"`{one.key}`", _code(one.values[0]), _code(one.values[-1])) for one in differences([shared.loaded])
    ]
    table = _table(("key", "value", "default"), rows) if rows else "Every key is at its default."
    return (
        f"## Training\n\nSeed {facts.seed}, {steps}{updates}{taken}; the run is {state}. "
        f"Keys that are not at their defaults; all of them stand in `config.yaml`:\n\n{table}"
    )


def _files(shared: Shared) -> str:
    versions: dict[str, object] = {LIBRARY: f"{VERSION}, of this export"}
    if python := shared.facts.manifest.get("python"):
        versions["python"] = python
    if isinstance(known := shared.facts.manifest.get("versions"), Mapping):
        versions |= {str(name): version for name, version in known.items() if version}
    packages = _table(("package", "version"), [(name, str(version)) for name, version in versions.items()])
    networks = _table(
        ("networks", "bytes", "SHA-256"),
        [(f"`{name}`", f"{entry.nbytes:,}", f"`{entry.sha256}`") for name, entry in shared.weights.items()],
    )
    return f"## Versions\n\n{packages}\n\n## Networks\n\n{networks}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def _code(text: str) -> str:
    return f"`{text.replace('`', '')}`"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
