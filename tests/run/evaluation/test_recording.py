"""Recordings: a plain file that holds every finished episode and nothing else."""

from pathlib import Path

import numpy as np
import pytest

from algorithm.core.data import Episode
from algorithm.core.errors import EnvError, StorageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.demos.npz import NpzWriter
from algorithm.run.evaluation.callbacks import Recording
from algorithm.run.evaluation.evaluate import evaluate
from tests.lib.small_disk import files_no_larger_than
from tests.lib.toys_agents import Attentive, Both, Guests, allowed, carried, chosen, random_script, see, tale
from tests.run.evaluation.test_video import Noisy

ONE = {DEFAULT_BEHAVIOUR: Attentive()}


def record(path: Path, env, players, episodes: int, **options) -> list[Episode]:
    told: list[Episode] = []
    evaluate(env, players, episodes, on_episode=told.append, callback=Recording(NpzWriter(path)), **options)
    return told


def test_a_recording_holds_what_each_agent_by_itself_brings(tmp_path, rng):
    script = random_script(rng, 80, 5)
    path = tmp_path / "a.npz"
    limit = 6
    expected = tale(script, {0, 1}, limit)
    with pytest.raises(
        (StopIteration, IndexError)
    ):  # the script is over: what was finished until then is there
        record(path, Guests(script, {0, 1}), ONE, 10**6, length_limit=limit)
    with np.load(path, allow_pickle=False) as file:
        told = list(zip(file["agent"].tolist(), file["total"].tolist(), file["length"].tolist(), strict=True))
        assert sorted(told) == sorted(expected[2]) and len(told) > 20
        assert set(file["behaviour"]) == {DEFAULT_BEHAVIOUR}
        rows = []
        for i, (agent, total, length) in enumerate(told):
            at = {name.partition("/")[2]: file[name] for name in file.files if name.startswith(f"{i}/")}
            moments = [tuple(moment) for moment in at["obs/obs"].astype(int).tolist()]
            assert moments == [(agent, moments[0][1], step) for step in range(length + 1)]
            assert np.array_equal(at["obs/tag"], see(moments)["tag"]) and at["obs/tag"].dtype == np.uint8
            assert np.array_equal(at["action_mask"], allowed(moments))
            assert np.array_equal(at["carry"], [carried(moment) for moment in moments])
            assert np.array_equal(at["action"], chosen(moments[:-1])) and at["action"].dtype == np.float32
            assert at["reward"].sum() == total and not (at["terminated"] | at["truncated"])[:-1].any()
            ends = at["terminated"].tolist(), at["truncated"].tolist()
            rows += [(*m, float(m[2] + 1), t, u) for m, t, u in zip(moments[:-1], *ends, strict=True)]
    finished = {row[:2] for row in expected[0] if row[4] or row[5]}
    assert sorted(rows) == sorted(row for row in expected[0] if row[:2] in finished)


def test_episodes_stand_in_the_order_in_which_they_ended_and_by_behaviour(tmp_path):
    path = tmp_path / "a.npz"
    env = Both(a=Guests(["T", "T", "."], {0}), b=Guests([".", ".", "T"], {0}))
    record(path, env, {"a": Attentive(), "b": Attentive()}, 1)
    with np.load(path) as file:
        assert file["behaviour"].tolist() == ["a", "a", "b"]
        assert file["length"].tolist() == [1, 1, 3]


def test_the_file_is_replaced_only_by_a_whole_one(tmp_path):
    path = tmp_path / "a.npz"
    path.write_text("old")
    with pytest.raises(EnvError):
        record(path, _Failing([".", "."], {0}), ONE, 1)
    record(path, Guests(["."] * 3, {0}), ONE, 1, stop=iter([False, False, True]).__next__)  # none finished
    assert path.read_text() == "old"
    record(path, Guests(["T"], {0}), ONE, 1)
    with np.load(path) as file:
        assert file["length"].tolist() == [1]
    assert list(tmp_path.iterdir()) == [path]


class _Failing(Guests):
    def step(self, actions):
        raise EnvError("the wheel came off")


@pytest.mark.parametrize(("path", "why"), [("nowhere/a.npz", "No such file"), (".", "it is a folder")])
def test_where_it_cannot_be_written_is_said_before_anything_is_played(tmp_path, path, why):
    with pytest.raises(StorageError, match="the recording cannot be written") as raised:
        record(tmp_path / path, _Failing(["."], {0}), ONE, 1)
    assert why in raised.value.why
    assert not list(tmp_path.iterdir())


LONG = ["." if t % 60 else "T" for t in range(1, 200)]


@pytest.mark.fault("F08")
@pytest.mark.parametrize(
    ("script", "episodes"), [(LONG, 2), (["T"] * 3, 3)], ids=["on the way", "at the end"]
)
def test_a_full_disk_ends_a_recording_and_leaves_no_half_of_it(tmp_path, script, episodes):
    with files_no_larger_than(1000), pytest.raises(StorageError, match="the recording cannot be written"):
        record(tmp_path / "a.npz", Noisy(script, {0}), ONE, episodes)
    assert not list(tmp_path.iterdir())
