"""A folder of tasks to load from, as a user would have it below the current directory."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from algorithm.config import ConfigError, LoadedConfig, dump_config, load_config, load_config_file

PENDULUM = """\
default:
  base_config:
    env_type: GYM
    env_name: Pendulum-v1
"""


@pytest.fixture
def task(cwd: Path) -> Callable[..., Path]:
    """``task(text, name="gym/task", file="config.yaml")`` writes a task's file and returns its path."""

    def write(text: str, name: str = "gym/task", file: str = "config.yaml") -> Path:
        path = cwd / "envs" / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    return write


@pytest.fixture
def loaded(task):
    """``loaded("a.b=1", …)``: the task with these overrides."""
    task(PENDULUM)
    return lambda *overrides, seed=1, **given: load_config(
        "gym/task", overrides=overrides, seed=seed, **given
    )


def refusal(*args: object, **kwargs: object) -> ConfigError:
    """The error that loading ends with."""
    with pytest.raises(ConfigError) as caught:
        load_config(*args, **kwargs)  # type: ignore[arg-type]
    return caught.value


def places(error: ConfigError) -> list[tuple[str, str]]:
    """What each problem is about, and where."""
    return [(problem.what, problem.where) for problem in error.problems]


def again(loaded: LoadedConfig) -> LoadedConfig:
    """The configuration that is read back from the file of a run."""
    Path("run.yaml").write_text(dump_config(loaded))
    return load_config_file(Path("run.yaml"))
