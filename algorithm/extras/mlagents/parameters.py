"""Translation of ``environment_parameters``."""

from __future__ import annotations

from typing import Any

from algorithm.config.tree import Node, to_value

_DEFAULTS: dict[str, dict[str, Any]] = {
    "uniform": {"min_value": 0.0, "max_value": 1.0},
    "gaussian": {"mean": 1.0, "st_dev": 1.0},
    "multirangeuniform": {"intervals": [[0.0, 1.0]]},
}


def cleaned(parameter: Node) -> Any:  # noqa: ANN401 - whatever was written
    """Return a parameter as our files have it, with the defaults of ML-Agents.

    Its files may have seeds in samplers, constants as samplers, null in place of criteria, and criteria in
    the last lesson; these are left out.
    """
    return _cleaned(to_value(parameter))


def _cleaned(value: Any) -> Any:  # noqa: ANN401 - whatever was written
    """Return a value, or a lesson's, as our files have it."""
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("curriculum"), list):
        return _without_last_criteria(value, value["curriculum"])
    arguments = value.get("sampler_parameters")
    if isinstance(arguments, dict):
        arguments.pop("seed", None)
        kind = value.get("sampler_type")
        if kind == "constant":
            return arguments.get("value", 0.0)
        return {**value, "sampler_parameters": {**_DEFAULTS.get(str(kind), {}), **arguments}}
    return value


def _without_last_criteria(parameter: dict[str, Any], curriculum: list[Any]) -> Any:  # noqa: ANN401 - a value
    """Return a parameter whose last lesson has no end; the value of its lesson if there is only one."""
    lessons = [_clean_lesson(each) if isinstance(each, dict) else each for each in curriculum]
    last = lessons[-1] if lessons else None
    if isinstance(last, dict):
        last.pop("completion_criteria", None)
        if len(lessons) == 1 and "value" in last:
            return last["value"]
    return {**parameter, "curriculum": lessons}


def _clean_lesson(lesson: dict[str, Any]) -> dict[str, Any]:
    """Return a lesson with its value cleaned, and the defaults of ML-Agents in its criteria."""
    kept = {key: value for key, value in lesson.items() if value is not None}
    if "value" in kept:
        kept["value"] = _cleaned(kept["value"])
    criteria = kept.get("completion_criteria")
    if isinstance(criteria, dict):
        length = criteria.get("min_lesson_length") or 1  # one episode is enough with 0
        threshold = criteria.get("threshold", 0.0)
        kept["completion_criteria"] = {**criteria, "min_lesson_length": length, "threshold": threshold}
        if criteria.get("measure") == "Elo":
            kept["completion_criteria"]["measure"] = "elo"
    return kept
