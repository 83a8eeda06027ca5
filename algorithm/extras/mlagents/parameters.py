"""Translation of ``environment_parameters``, and of samplers and curricula of ML-Agents 0.12 to 0.16."""

from __future__ import annotations

from typing import Any

from algorithm.config.errors import ConfigError, Problem
from algorithm.config.tree import Node, from_value, to_value

_INTERVAL = "resampling-interval"
_SAMPLERS = {"multirange_uniform": "multirangeuniform"}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "uniform": {"min_value": 0.0, "max_value": 1.0},
    "gaussian": {"mean": 1.0, "st_dev": 1.0},
    "multirangeuniform": {"intervals": [[0.0, 1.0]]},
}
_A_CURRICULUM = (
    "lessons end at thresholds, and each parameter has a value for each lesson, one more than thresholds",
    "write thresholds: [0.1, 0.5] and parameters: {name: [1, 2, 3]}",
)
_EVERY_EPISODE = "values are drawn for every episode"


def is_samplers(root: Node) -> bool:
    """Return whether a file holds samplers of ML-Agents 0.12 to 0.16, by its key ``resampling-interval``."""
    return _INTERVAL in root.children


def is_curricula(root: Node) -> bool:
    """Return whether a file holds curricula of ML-Agents 0.12 to 0.16, of one or of several behaviours."""
    return any("thresholds" in node.children for node in (root, *root.children.values()))


def samplers_of(root: Node) -> tuple[Node, list[tuple[str, Node, str]]]:
    """Translate samplers of ML-Agents 0.12 to 0.16 to ``environment_parameters`` of later releases.

    Returns these parameters, and (key, its node, why) of each key that has no effect any more.
    """
    interval = root.find((_INTERVAL,))
    parameters = {}
    for name, node in root.without(_INTERVAL).children.items():
        kind = str(node.value_at("sampler-type"))
        rest = node.without("sampler-type").children
        sampler = {
            "sampler_type": Node(_SAMPLERS.get(kind, kind), node.where),
            "sampler_parameters": Node(rest, node.where),
        }
        parameters[name] = Node(sampler, node.where)
    unused = [(_INTERVAL, interval, _EVERY_EPISODE)] if interval else []
    return Node(parameters, root.where), unused


def curricula_of(root: Node) -> Node:
    """Translate curricula of ML-Agents 0.12 to 0.16 to ``environment_parameters``, and return them.

    Raises ConfigError for a curriculum in another form.
    """
    curricula: dict[str, Any] = {}
    for behaviour, node in ({"": root} if "thresholds" in root.children else root.children).items():
        criteria = {"behavior": behaviour} if behaviour else {}
        criteria |= {key: node.value_at(key) for key in ("measure", "min_lesson_length", "signal_smoothing")}
        criteria = {key: value for key, value in criteria.items() if value is not None}
        thresholds, parameters = node.value_at("thresholds"), node.value_at("parameters")
        if not _lengths_fit(thresholds, parameters):
            raise ConfigError([Problem("a curriculum cannot be read", node.where, *_A_CURRICULUM)])
        for name, values in parameters.items():
            lessons: list[dict[str, Any]] = [{"name": f"lesson{i}", "value": x} for i, x in enumerate(values)]
            for lesson, threshold in zip(lessons, thresholds, strict=False):
                lesson["completion_criteria"] = {**criteria, "threshold": threshold}
            curricula[name] = {"curriculum": lessons}
    return from_value(curricula, root.where)


def _lengths_fit(thresholds: object, parameters: object) -> bool:
    """Return whether each parameter has one value more than there are thresholds."""
    if not isinstance(thresholds, list) or not isinstance(parameters, dict):
        return False
    return all(isinstance(each, list) and len(each) == len(thresholds) + 1 for each in parameters.values())


def cleaned(name: str, parameter: Node) -> tuple[Any, list[tuple[str, str]]]:
    """Return a parameter as our files have it, and (what, why) of each part that has been left out.

    Defaults of ML-Agents are written out. Its files may have seeds in samplers, constants as samplers, null
    in place of criteria, and criteria in the last lesson; beta releases wrote ``- Lesson0: {…}``.
    """
    left_out: list[tuple[str, str]] = []
    return _cleaned(name, to_value(parameter), left_out), left_out


def _cleaned(name: str, value: Any, left_out: list[tuple[str, str]]) -> Any:  # noqa: ANN401 - whatever was written
    """Return a parameter as our files have it; append to ``left_out`` as :func:`cleaned` returns it."""
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("curriculum"), list):
        lessons = [_with_name(lesson) for lesson in value["curriculum"]]
        lessons = [
            _clean_lesson(name, each, left_out) if isinstance(each, dict) else each for each in lessons
        ]
        lessons = _without_ratings(name, lessons, left_out)
        last = lessons[-1] if lessons else None
        if isinstance(last, dict) and last.pop("completion_criteria", None) is not None:
            left_out.append((f"{name}: completion_criteria of the last lesson", "no lesson follows it"))
        if len(lessons) == 1 and isinstance(last, dict) and "value" in last:
            return last["value"]
        return {**value, "curriculum": lessons}
    arguments = value.get("sampler_parameters")
    if isinstance(arguments, dict):
        if arguments.pop("seed", None) is not None:
            left_out.append((f"{name}: seed of a sampler", "derived from the run's seed"))
        kind = value.get("sampler_type")
        if kind == "constant":
            return arguments.get("value", 0.0)
        return {**value, "sampler_parameters": {**_DEFAULTS.get(str(kind), {}), **arguments}}
    return value


def _without_ratings(name: str, lessons: list[Any], left_out: list[tuple[str, str]]) -> list[Any]:
    """Return the lessons up to the first that ends at an Elo rating: without self-play it never ends."""
    for at, lesson in enumerate(lessons[:-1]):
        criteria = lesson.get("completion_criteria") if isinstance(lesson, dict) else None
        if isinstance(criteria, dict) and str(criteria.get("measure")).lower() == "elo":
            left = [str(other.get("name")) for other in lessons[at + 1 :] if isinstance(other, dict)]
            why = f"no self-play, so no ratings: this lesson never ends; left out: {', '.join(left)}"
            left_out.append((f"{name}: measure: Elo of {lesson.get('name')}", why))
            return [*lessons[:at], {**lesson, "completion_criteria": None}]
    return lessons


def _with_name(lesson: Any) -> Any:  # noqa: ANN401 - whatever was written
    """Return a lesson with its name as a key; ``Lesson0: {…}`` is the form of beta releases."""
    if isinstance(lesson, dict) and len(lesson) == 1:
        ((name, keys),) = lesson.items()
        if isinstance(keys, dict):
            return {"name": name, **keys}
    return lesson


def _clean_lesson(name: str, lesson: dict[str, Any], left_out: list[tuple[str, str]]) -> dict[str, Any]:
    """Return a lesson with its value cleaned, and the defaults of ML-Agents in its criteria."""
    kept = {key: value for key, value in lesson.items() if value is not None}
    if "value" in kept:
        kept["value"] = _cleaned(name, kept["value"], left_out)
    criteria = kept.get("completion_criteria")
    if isinstance(criteria, dict):
        length = criteria.get("min_lesson_length") or 1  # one episode is enough with 0
        threshold = criteria.get("threshold", 0.0)
        kept["completion_criteria"] = {**criteria, "min_lesson_length": length, "threshold": threshold}
    return kept
