"""Whole populations: real members, each a process, and a Ray that is played."""

import contextlib
import dataclasses
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import main_ds
from algorithm.store.checkpoints.manifest import STATE
from ds.evolver import evolver, generations, members
from ds.evolver.generations import MemberStart
from ds.evolver.plan import PopulationPlan
from tests.ds.fake_ray import FakeRay

CONFIG = {
    "base_config": {
        "env_type": "GYM",
        "env_name": "Pendulum-v1",
        "env_args": {"max_episode_steps": 20},
        "max_step": 240,
        "evolver_mode": "cem",
        "evolver_cem_length": 2,
        "evolver_cem_time": 1000,
    },
    "nn_config": {"q": {"dense_n": 8}, "policy": {"dense_n": 8}},
    "replay_config": {"capacity": 1000},
    "sac_config": {
        "start_step": 40,
        "batch_size": 8,
        "write_summary_per_step": 60,
        "save_model_per_step": 60,
        "random_params": {"learning_rate": {"truncated": [1e-4, 1e-2]}, "n_step": {"in": [1, 3]}},
    },
    "eval_config": {"per_step": 60, "episodes": 1},
}


class Killed(BaseException):
    """The command is killed."""


class Stop:
    """A request to stop, after so many looks at it."""

    text, exit_code = "stopping", 130

    def __init__(self, looks: float = math.inf) -> None:
        self._left = looks

    def __bool__(self) -> bool:
        self._left -= 1
        return self._left < 0


class Scene:
    """A folder with a task, in which populations are trained."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder, monkeypatch
        self.ray = FakeRay()
        (folder / "task").mkdir(parents=True)
        self.write(CONFIG)

    def write(self, config: object) -> None:
        (self.folder / "task" / "config.yaml").write_text(yaml.safe_dump({"default": config}))

    def run(self, *words: str, stop: Stop | None = None, learners: int = 2) -> int:
        """Run the command with a new Ray; its processes end with it, as after ``kill -9``."""
        self.ray = FakeRay()

        @contextlib.contextmanager
        def connected(address: str | None) -> Iterator[tuple[FakeRay, Stop]]:
            try:
                yield self.ray, Stop() if stop is None else stop
            finally:
                self.ray.close()

        self._patch.chdir(self.folder)
        self._patch.setattr(evolver, "connected", connected)
        arguments = ["./task", "evolver", f"--num_learners={learners}", "-n", "pop", *words]
        self._patch.setattr(sys, "argv", ["main_ds.py", *arguments])
        return main_ds.main(arguments)

    @property
    def population(self) -> Path:
        return self.folder / "models" / "task" / "pop"

    def lineage(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.population / "lineage.jsonl").read_text().splitlines()]

    def networks(self) -> dict[str, bytes]:
        """The networks that members began the last generation with, and those they ended with."""
        files = [
            *self.population.glob("generations/generation_0002/*/model.safetensors"),
            *(self.folder / "models" / "task").glob("pop_?/checkpoints/step_000000240/model.safetensors"),
        ]
        return {str(file.relative_to(self.folder)): file.read_bytes() for file in sorted(files)}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Scene]:
    return lambda name: Scene(tmp_path / name, monkeypatch)


@pytest.mark.slow
@pytest.mark.fault("F29")
def test_a_population_that_is_killed_ends_as_one_that_was_not(
    scene: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed in the middle of a generation, and between two files of a boundary."""
    whole = scene("whole")
    assert whole.run("--seed=1") == 0
    assert "the training is over; the best is pop_" in capsys.readouterr().out
    assert len(whole.networks()) == 4
    assert whole.run("--resume") == 2
    assert "nothing is left to do" in "".join(capsys.readouterr())

    cut = scene("cut")
    step, write_start = members.MemberRun.step, evolver.write_start
    written = itertools.count(1)

    def killed_in_a_generation(member: members.MemberRun) -> None:
        step(member)
        if member.run.joinpath("checkpoints", "step_000000060").exists():
            raise Killed

    def killed_between_two_files(*args: object, **more: object) -> None:
        if next(written) == 2:
            raise Killed
        write_start(*args, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(members.MemberRun, "step", killed_in_a_generation)
        with contextlib.suppress(Killed):
            cut.run("--seed=1")
    assert not cut.lineage()
    with monkeypatch.context() as patch:
        patch.setattr(evolver, "write_start", killed_between_two_files)
        with pytest.raises(Killed):
            cut.run("--resume")
    assert not cut.lineage()
    assert list((cut.population / "generations").glob(".draft_*"))
    assert cut.run("--resume") == 0
    assert cut.lineage() == whole.lineage()
    assert cut.networks() == whole.networks()
    assert {record["end"] for record in cut.lineage()} == {"complete"}


@pytest.mark.slow
def test_the_best_go_on_and_the_others_begin_with_copies_of_them(scene: Callable[[str], Scene]) -> None:
    one = scene("copy")
    assert one.run("--seed=1", "-o", "base_config.evolver_mode=copy", learners=3) == 0
    begun = one.lineage()[3:]
    (elite,) = (record for record in begun if record["origin"] == "elite")
    number, other = (record["member"] for record in begun if record["origin"] == "copied")
    assert all(record["parents"] == [elite["member"]] for record in begun)
    start = one.population / "generations" / "generation_0001" / f"member_{number}"
    assert (start / "replay").is_dir() and (start / "optim.safetensors").exists()
    log = (one.folder / "models" / "task" / f"pop_{number}" / "train.log").read_text()
    assert f"the networks are those of {start}" in log and f"the replay is that of {start}" in log
    assert (
        start.with_name(f"member_{other}").exists()
        and not start.with_name(f"member_{elite['member']}").exists()
    )


@pytest.mark.slow
@pytest.mark.fault("F29")
def test_a_member_that_cannot_go_on_holds_nobody_up_and_ranks_last(
    scene: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = scene("dies")
    part = PopulationPlan.part

    def spoilt(
        plan: PopulationPlan, generation: generations.Generation, number: int
    ) -> members.GenerationPart:
        made = part(plan, generation, number)
        if number == 2 and generation.number == 0:  # it does not even start
            return dataclasses.replace(made, overrides=("sac_config.batch_size=0",))
        return made

    monkeypatch.setattr(PopulationPlan, "part", spoilt)
    assert one.run("--seed=1") == 0
    said = capsys.readouterr().out
    assert "pop_2 learner has ended with code 2" in said
    dead, alive = one.lineage()[1], one.lineage()[0]
    assert (dead["end"], dead["score"], dead["rank"], dead["evaluations"]) == ("given up", None, 2, [])
    assert (alive["end"], alive["rank"], alive["elite"]) == ("complete", 1, True)
    assert "sac_config.batch_size" in str(dead["why"])
    last = one.lineage()[3]
    assert (last["end"], last["origin"], last["parents"]) == ("complete", "drawn", [1])


@pytest.mark.parametrize(
    "second", ["", '{"step": 120, "eval/return_mean": -3.0}\n', '{"step": 120, "eval/retu']
)
def test_an_evaluation_that_only_the_checkpoint_has_counts(tmp_path: Path, second: str) -> None:
    """Of a member that was killed between its last checkpoint and the row of its last evaluation."""
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 60, "eval/return_mean": -1.0}}\n{second}')
    pending = [["a", "eval/return_mean", -2.0], ["b", "eval/return_mean", -4.0], ["a", "loss/q", 0.5]]
    found = members.unwritten_evaluations(tmp_path, {"step": 120, "pending": pending})
    assert [*members.read_evaluations(tmp_path), *found] == [-1.0, -3.0]


@pytest.mark.parametrize(("saved", "end"), [(2, "complete"), (1, "given up")])
def test_a_member_that_is_killed_behind_its_last_checkpoint_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: int, end: str
) -> None:
    """What goes on from there refuses, since nothing is left to do."""
    learner = SimpleNamespace(state="given up", code=2, leave=lambda: None, explain_end=str)
    group = SimpleNamespace(learner=learner, start=lambda: None, over=lambda: learner)
    monkeypatch.setattr(members, "LearnerGroup", lambda *_, **__: group)
    part = SimpleNamespace(start=MemberStart(step=-1, evaluations=0), evaluations=2)
    plan: Any = SimpleNamespace(number=1, name="pop_1", folder=tmp_path, run="pop_1", part=part)
    member = members.MemberRun(None, plan)  # type: ignore[arg-type]
    checkpoint = tmp_path / "pop_1" / "checkpoints" / "step_000000120"
    checkpoint.mkdir(parents=True)
    metrics = {"step": 120, "pending": [["a", "eval/return_mean", -2.0]]}
    state = {"run": {"counters": {"evaluations": saved}}, "metrics": metrics}
    (checkpoint / STATE).write_text(json.dumps(state))
    member.step()
    assert (member.end, member.evaluations) == (end, [-2.0] if end == "complete" else [])


@pytest.mark.parametrize(
    ("words", "change", "said"),
    [
        (["-o", "base_config.evolver_enabled=false"], {}, "evolver_enabled is false"),
        (["-o", "base_config.evolver_cem_min_length=3"], {}, "needs at least 3"),
        (["-o", "eval_config.per_step=-1"], {}, "a population needs evaluations"),
        (["-o", "eval_config.episodes=0"], {}, "a population needs evaluations"),
        ([], {"sac_config": {"random_params": {"seq_encoder": {"in": ["RNN"]}}}}, "cannot evolve"),
        (["--resume"], {}, "there is no such population"),
    ],
)
def test_what_no_population_can_be_trained_with(
    words: list[str],
    change: dict[str, object],
    said: str,
    scene: Callable[[str], Scene],
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = scene("refused")
    one.write(CONFIG | change)
    assert one.run("--seed=1", *words) == 2
    assert said in "".join(capsys.readouterr())
    assert not one.ray.placed and not (one.folder / "models").exists()


def test_a_population_goes_on_as_it_was_begun(
    scene: Callable[[str], Scene], capsys: pytest.CaptureFixture[str]
) -> None:
    one = scene("other")
    assert one.run("--seed=1", stop=Stop(looks=0)) == 130
    for words, learners, why in (
        ([], 3, "the population has 2 members, not 3"),
        (["--seed=2"], 2, "the population's seed is 1, not 2"),
        (["--num_actors=1"], 2, "was started with 0 actors for each member"),
        (["-o", "base_config.evolver_mode=copy"], 2, "was started with evolver_mode cem"),
        (["-o", "sac_config.random_params.tau={std: 0.001}"], 2, "not sac_config.learning_rate"),
    ):
        assert one.run("--resume", *words, learners=learners) == 2
        assert why in "".join(capsys.readouterr())
    assert not one.ray.placed
    words = ["--max_step=480", "-o", "sac_config.random_params.n_step={in: [3, 5]}"]
    assert one.run("--resume", *words, stop=Stop(looks=0)) == 130
    kept = yaml.safe_load((one.population / "population.yaml").read_text())
    assert kept["base_config"]["max_step"] == 480
    assert kept["sac_config"]["random_params"]["n_step"] == {"in": [3, 5]}
