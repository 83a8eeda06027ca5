"""``--tune``: starts, resumes or estimates a study. Only an estimate loads torch."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from algorithm.app.cli.train import TrainOptions
from algorithm.app.cli.train_flags import config_flags
from algorithm.config.errors import ConfigError
from algorithm.config.extras_config import TuneConfig
from algorithm.config.loader import LoadedConfig, load_config
from algorithm.config.locate import find_env
from algorithm.config.resolve import lay, layers, read_edits
from algorithm.config.sections import DEFAULT_SECTION
from algorithm.config.tree import KeyPath, Node, from_value, to_value
from algorithm.config.yaml_io import write_yaml
from algorithm.core.errors import StorageError, UsageError, visible
from algorithm.core.reading import read_json
from algorithm.core.wording import clock_time, counted, format_bytes, short
from algorithm.extras.tune.optimiser import Optimiser, require_optimiser
from algorithm.extras.tune.records import (
    DATABASE,
    RUN_SECTION,
    SECTION,
    SNAPSHOT,
    TRIALS,
    StudySize,
    TrialRecord,
    best_of,
    shown,
    verdict,
)
from algorithm.extras.tune.space import SearchSpace, limits, read_space
from algorithm.extras.tune.study import Study
from algorithm.extras.tune.trial import RunPlan, fitting
from algorithm.keys.checkpoints import EARLY
from algorithm.run.signals import StopRequest
from algorithm.store.files import finite_or_null, write_json, write_text
from algorithm.store.lock import RunLock
from algorithm.store.names import STUDY, directory_flags, env_folder, expand_name, study_names
from algorithm.store.provenance import describe_start
from algorithm.store.rundir import RunDir

_FREE = ("tune_config.trials", "tune_config.jobs", "tune_config.final_seeds")
"""Keys that may change when a study is resumed."""


def tune(options: TrainOptions, load: Callable[[], LoadedConfig]) -> int:
    """Start, resume or estimate a study by the options; return the exit code.

    load: loads the task's configuration
    Raises ConfigError for an invalid space or limit, and other UserErrors.
    """
    require_optimiser()
    if options.resume:
        return _resume(options)
    loaded = load()
    checked_space(loaded)
    if options.dry_run:
        from algorithm.app.preview.dry_run import dry_run

        return dry_run(options, loaded, repeated=partial(_cost, _size(loaded.config.tune_config)))
    parent = env_folder(loaded.env_label, options.directory)
    name = expand_name(options.tune or loaded.config.base_config.name, parent)
    if (parent / name).is_dir() and {file.name for file in (parent / name).iterdir()} <= {SNAPSHOT}:
        shutil.rmtree(parent / name)  # a start that was killed
    folder = RunDir.create(loaded.env_label, name, models=options.directory, argument=options.env)
    edits = read_edits(loaded.overrides, config_flags(options), Node({}), []).tree
    facts = {
        "seed": loaded.seed,
        "section": loaded.section,
        "algorithm": loaded.config.algorithm,
        "given": to_value(edits.without("tune_config")),
        "tune": loaded.config.tune_config.model_dump(mode="json"),
        **describe_start(sys.argv, device=options.device),
    }
    write_text(folder.path / SNAPSHOT, write_yaml(_snapshot(loaded)))
    write_json(folder.path / STUDY, facts)
    return _run(folder, loaded, options.device)


def _study(options: TrainOptions) -> RunDir:
    """Return the folder of the study that is named, else of the newest. Raises UsageError without one."""
    env = find_env(options.env)
    known = study_names(env.label, models=options.directory)
    name = options.tune or options.name or next(iter(known), "")
    if name not in known:
        raise UsageError(
            f"there is no study {name!r} of {env.label}" if name else f"there is no study of {env.label}",
            where=str(options.directory / env.label),
            why=f"studies there: {', '.join(known) or 'none'}",
            fix="name one of them, or start one: leave --resume out",
        )
    path = env_folder(env.label, options.directory) / name
    return RunDir(env.label, name, path, options.env)


def _resume(options: TrainOptions) -> int:
    """Continue a study; return the exit code. Raises UsageError for settings that may not change."""
    folder = _study(options)
    keys = [text.partition("=")[0] for text in options.overrides] + list(config_flags(options))
    keys += ["--seed"] * (options.seed is not None)
    if other := [key for key in keys if key not in _FREE]:
        raise UsageError(
            "a study continues with its original settings",
            where=folder.shown(folder.path),
            why=f"trials with another {', '.join(other)} could not be compared",
            fix=f"leave it out, or start another study; {', '.join(_FREE)} may change",
        )
    facts = read_json(folder.path / STUDY)
    loaded = load_config(
        options.env,
        f"{folder.path / SNAPSHOT}:{RUN_SECTION}",
        options.overrides,
        seed=facts["seed"],
        defaults={f"tune_config.{key}": value for key, value in facts["tune"].items()},
        require_runnable=True,
    )
    return _run(folder, loaded, facts["device"] if options.device == "auto" else options.device)


def _run(folder: RunDir, loaded: LoadedConfig, device: str) -> int:
    """Run the search and the comparison on fresh seeds; return the exit code."""
    tune, space, seed = loaded.config.tune_config, checked_space(loaded), loaded.seed
    plan = _plan(folder, loaded, device)
    with RunLock(folder.lock, notice=_print), StopRequest() as stop:
        begun = read_json(folder.path / STUDY) | {"tune": tune.model_dump(mode="json")}
        write_json(folder.path / STUDY, begun)
        first = plan.length // 3 if tune.prune_after is None else tune.prune_after
        optimiser = Optimiser(_database(folder), space, tune, seed, first)
        refused = partial(_refused, folder, plan.algorithm, seed)
        study = Study(plan, optimiser, seed, refused=refused, inform=_print)
        _print(f"study {folder.name}: {_size(tune).text}")
        try:
            study.search(stop, lambda: _write_trials(folder, optimiser))
        finally:
            _write_trials(folder, optimiser)
        best = best_of(optimiser.trials, tune.direction)
        if not stop and best is not None and tune.final_seeds:
            _print(f"the best values and the unchanged section, on {tune.final_seeds} fresh seeds each")
            final = study.compare(stop, best)
            if not stop:
                folder.write_result({"trial": best.number, "final": final})
        if best is not None:
            conclusion = _conclusion(folder, best, tune.direction)
            write_text(folder.path / SECTION, section_text(best, begun, tune, conclusion))
            _print_best(folder, best, conclusion)
    if stop:
        _print(f"{stop.reason}: resume with {folder.command('--tune', folder.name, '--resume')}")
    return stop.exit_code


def _conclusion(folder: RunDir, best: TrialRecord, direction: str) -> str:
    """Return the verdict of the last comparison, even of an earlier start; empty if of another trial."""
    compared: Any = folder.read_result() if folder.result.is_file() else {}
    return verdict(compared["final"], direction) if compared.get("trial") == best.number else ""


def _database(folder: RunDir) -> Path:
    """Return the path of the search's database. Raises StorageError if only the database is missing."""
    database = folder.path / DATABASE
    if (folder.path / TRIALS).exists() and not database.exists():
        raise StorageError(
            "the database of a study is missing",
            where=database,
            why=f"{TRIALS} lists trials, but the search has forgotten them",
            fix="restore a copy of it, or start another study; the runs of its trials are intact",
        )
    return database


def _plan(folder: RunDir, loaded: LoadedConfig, device: str) -> RunPlan:
    """Return the common settings of the study's runs."""
    config, tune = loaded.config, loaded.config.tune_config
    return RunPlan(
        study=folder,
        tune=tune,
        begin=("-c", f"{folder.path / SNAPSHOT}:{RUN_SECTION}"),
        always=(*directory_flags(folder.models), "--device", device, "--quiet"),
        length=max(0, config.base_config.max_step),
        every=max(0, config.eval_config.per_step or EARLY) if tune.metric.startswith("eval/") else 0,
        algorithm=config.algorithm,
    )


def _print_best(folder: RunDir, best: TrialRecord, conclusion: str) -> None:
    """Print the best trial, the conclusion from fresh seeds, and where its section is."""
    lines = [f"best: trial {best.number}, {short(best.score)}"]
    lines += [f"  {path}: {shown(value)}" for path, value in best.values.items()]
    lines += [conclusion, f"section  {folder.shown(folder.path / SECTION)}"]
    for line in filter(None, lines):
        _print(line)


def _write_trials(folder: RunDir, optimiser: Optimiser) -> None:
    """Write the table of trials."""
    trials = finite_or_null([asdict(trial) for trial in optimiser.trials])
    write_json(folder.path / TRIALS, {"trials": trials})


def checked_space(loaded: LoadedConfig) -> SearchSpace:
    """Return the space of a study. Raises ConfigError if the study cannot run with it."""
    space = read_space(loaded.config.tune_config.params)
    problems = list(limits(loaded, space))
    if problems:
        raise ConfigError(problems)
    return space


def _refused(folder: RunDir, algorithm: str, seed: int, values: Mapping[str, object]) -> str:
    """Return why the configuration with these values is invalid; empty if it is valid."""
    section = f"{folder.path / SNAPSHOT}:{RUN_SECTION}"
    try:
        load_config(folder.argument, section, fitting(values, algorithm), seed=seed, require_runnable=True)
    except ConfigError as error:
        return f"refused: {error.problems[0].what}, {error.problems[0].why}"
    return ""


def _snapshot(loaded: LoadedConfig) -> dict[str, Any]:
    """Return a file with two sections: the task's, with overrides and flags, and an empty one for the runs.

    Values of a preset and settings of the study are left out: a preset's values may be searched. The runs
    inherit the first section, which may hold keys of other algorithms; their own section may not.
    """
    taken = loaded.preset.taken if loaded.preset else ()
    tree = _without(from_value(loaded.raw, "").without("tune_config"), {tuple(p.split(".")) for p in taken})
    return {DEFAULT_SECTION: to_value(tree), RUN_SECTION: {}}


def _without(tree: Node, paths: Collection[KeyPath]) -> Node:
    """Return a copy of a tree without the values at these paths."""
    below = {key: {path[1:] for path in paths if path[:1] == (key,)} for key in tree.children}
    kept = {key: child for key, child in tree.children.items() if () not in below[key]}
    return Node({key: _without(child, below[key]) if below[key] else child for key, child in kept.items()})


def _size(tune: TuneConfig) -> StudySize:
    """Return the numbers of runs of a study."""
    return StudySize(trials=tune.trials, seeds=tune.seeds, final=2 * tune.final_seeds, jobs=tune.jobs)


def _cost(size: StudySize, seconds: float, bytes_: int) -> tuple[str, str]:
    """Return a row with time and disk of all runs, if none is pruned; seconds, bytes_: of one run."""
    time = clock_time(size.runs * seconds / size.jobs)
    return "study", f"{size.text}: at most {time}, {format_bytes(size.runs * bytes_)}"


def section_text(best: TrialRecord, begun: Mapping[str, Any], tune: TuneConfig, conclusion: str) -> str:
    """Return the best values as a section to paste, with comments on score and conclusion.

    begun: settings at the study's start
    """
    edits = from_value(begun["given"], "").leaves()
    values = {".".join(path): leaf.value for path, leaf in edits} | dict(best.values)
    values.pop("base_config.name", None)
    tree = lay(*layers(fitting(values, begun["algorithm"]), ""))
    head = [
        f"# Trial {best.number}, {counted(tune.seeds, 'seed')} each: {tune.metric} {short(best.score)}.",
        f"# {conclusion or 'It was not compared with the unchanged section.'}",
    ]
    inherited = {} if begun["section"] in ("", DEFAULT_SECTION) else {"inherited": begun["section"]}
    return "\n".join([*head, write_yaml({"tuned": {**inherited, **to_value(tree)}})])


def _print(text: str) -> None:
    print(visible(text), flush=True)
