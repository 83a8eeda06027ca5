"""Translation of ``environment_parameters``."""

from __future__ import annotations

from typing import Any

from algorithm.config.tree import Node, to_value

_DEFAULTS: dict[str, dict[str, Any]] = {
    "uniform": {"min_value": 0.0, "max_value": 1.0},
    "gaussian": {"mean": 1.0, "st_dev": 1.0},
    "multirangeuniform": {"intervals": [[0.0, 1.0]]},
}


def cleaned(name: str, parameter: Node) -> tuple[Any, list[tuple[str, str]]]:
    """Return a parameter as our files have it, and (what, why) of each part that has been left out.

    Defaults of ML-Agents are written out. Its files may have seeds in samplers, constants as samplers, null
    in place of criteria, and criteria in the last lesson.
    """
    left_out: list[tuple[str, str]] = []
    return _cleaned(name, to_value(parameter), left_out), left_out


def _cleaned(name: str, value: Any, left_out: list[tuple[str, str]]) -> Any:  # noqa: ANN401 - whatever was written
    """Return a parameter as our files have it; append to ``left_out`` as :func:`cleaned` returns it."""
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("curriculum"), list):
        lessons = [
            _clean_lesson(name, lesson, left_out) if isinstance(lesson, dict) else lesson
            for lesson in value["curriculum"]
        ]
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
        if criteria.get("measure") == "Elo":
            kept["completion_criteria"]["measure"] = "elo"
    return kept
