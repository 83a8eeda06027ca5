"""Demonstrations: what a recording holds arrives; what does not fit is refused with its place."""

# ruff: noqa: E501 - a table of faults is read across, one fault a line
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from algorithm.core.data import Demonstrations
from algorithm.core.errors import UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR, ActionSpec, AgentSpec
from algorithm.demos.sources import READERS, load_demonstrations
from algorithm.keys.demonstrations import DemoConfig
from tests.demos.maze import write
from tests.lib.episodes import record

ROOT = Path(__file__).parents[2]
HYBRID = "algorithm.env.toys:ToyHybrid-v0"
TEAM = ("Striker?team=0", "Striker", "Striker?team=1")
MASKED = "algorithm.env.toys:ToyMasked-v0"


def load(folder, spec, path="a.npz", behaviour=DEFAULT_BEHAVIOUR, **keys) -> Demonstrations:
    found = load_demonstrations(DemoConfig(path=path, **keys), spec, behaviour, folder)
    assert found is not None
    return found


def refusal(folder, spec, path="a.npz", **keys) -> str:
    with pytest.raises(UsageError) as error:
        load(folder, spec, path, **keys)
    return str(error.value)


def rewrite(source, target, **changed):
    """Write a recording with other arrays; None leaves one out."""
    with np.load(source) as file:
        arrays = {name: file[name] for name in file.files}
    arrays |= {name.replace("__", "/"): value for name, value in changed.items()}
    np.savez(target, **{name: value for name, value in arrays.items() if value is not None})


@pytest.fixture
def spec(tmp_path: Path) -> AgentSpec:
    """Of ``a.npz``, two episodes of Pendulum of two steps each."""
    return record(tmp_path / "a.npz", "Pendulum-v1", 2, limit=2)


def test_the_demonstrations_of_the_maze_are_those_of_their_script(tmp_path):
    write(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as again, np.load(ROOT / "envs/toy/maze/expert.npz") as shipped:
        assert sorted(again.files) == sorted(shipped.files) and shipped["total"].tolist() == [1.0] * 10
        for name in shipped.files:
            np.testing.assert_array_equal(again[name].shape, shipped[name].shape)
            if again[name].dtype.kind == "f":
                np.testing.assert_allclose(again[name], shipped[name], atol=1e-3)
            else:
                np.testing.assert_array_equal(again[name], shipped[name])


@pytest.mark.parametrize("env_name", [HYBRID, MASKED, "Pendulum-v1"])
def test_what_was_recorded_arrives(tmp_path, env_name):
    spec = record(tmp_path / "a.npz", env_name)
    found = load(tmp_path, spec)
    with np.load(tmp_path / "a.npz") as file:
        for number, episode in enumerate(found.episodes):
            arrays = {f"obs/{name}": value for name, value in episode.obs.items()}
            arrays |= {name: getattr(episode, name) for name in ("action", "reward", "action_mask")}
            for name, value in arrays.items():
                np.testing.assert_array_equal(value, file[f"{number}/{name}"])
            assert episode.terminated == file[f"{number}/terminated"][-1]
            assert episode.total == pytest.approx(file["total"][number], rel=1e-6)
    assert len(found.episodes) == 3 and list(found.digests) == ["a.npz"]
    assert load_demonstrations(DemoConfig(), spec, DEFAULT_BEHAVIOUR, tmp_path) is None


@pytest.mark.parametrize(
    "path", ["demos", "demos/*.npz", ("demos/a.npz", "demos/b.npz"), ("demos", "demos/a.npz")]
)
def test_a_folder_a_pattern_and_a_list_name_files_once(tmp_path, spec, path):
    (tmp_path / "demos").mkdir()
    for name in ("a", "b"):
        rewrite(tmp_path / "a.npz", tmp_path / "demos" / f"{name}.npz")
    found = load(tmp_path, spec, path)
    assert list(found.digests) == ["demos/a.npz", "demos/b.npz"] and len(found.episodes) == 4
    assert list(load(tmp_path, spec, str(tmp_path / "demos" / "a.npz")).digests) == ["demos/a.npz"]


def test_the_best_episodes_are_taken_in_their_order(tmp_path):
    spec = record(tmp_path / "a.npz", "Pendulum-v1", 5)
    totals = [episode.total for episode in load(tmp_path, spec).episodes]
    ranked = sorted(totals, reverse=True)
    for options, least in (({"max_episodes": 2}, ranked[1]), ({"min_return": ranked[2]}, ranked[2])):
        kept = [episode.total for episode in load(tmp_path, spec, **options).episodes]
        assert kept == [total for total in totals if total >= least]
    assert "lower demonstrations.min_return" in refusal(tmp_path, spec, min_return=ranked[0] + 1)


def test_the_digest_is_that_of_the_episodes_and_not_of_the_file(tmp_path, spec):
    rewrite(tmp_path / "a.npz", tmp_path / "b.npz")  # uncompressed
    rewrite(tmp_path / "a.npz", tmp_path / "c.npz", **{"1__reward": np.zeros(2, np.float32)})
    (a,), (b,), (c,) = (load(tmp_path, spec, f"{name}.npz").digests.values() for name in "abc")
    assert a == b != c


def test_only_the_own_behaviour_is_read(tmp_path, spec):
    rewrite(tmp_path / "a.npz", tmp_path / "b.npz", behaviour=np.array(["Goalie", "Striker"]))
    assert len(load(tmp_path, spec, "b.npz", "Goalie").episodes) == 1
    assert len(load(tmp_path, spec, "b.npz", "Striker?team=1").episodes) == 1
    assert "of the behaviour 'default', but of 'Goalie', 'Striker'" in refusal(tmp_path, spec, "b.npz")


@pytest.mark.parametrize("there", TEAM)
@pytest.mark.parametrize("here", TEAM)
def test_teams_of_one_behaviour_share_recordings(tmp_path, spec, here, there):
    rewrite(tmp_path / "a.npz", tmp_path / "b.npz", behaviour=np.array([there, there]))
    assert len(load(tmp_path, spec, "b.npz", here).episodes) == 2


def test_a_name_that_no_behaviour_has_is_told_and_matched_by_its_spaces(tmp_path, spec):
    found = load(tmp_path, spec, behaviour="Ball?team=0")
    assert len(found.episodes) == 2
    assert found.notices == ["a.npz: recorded as the behaviour default, used as Ball"]
    other = AgentSpec(spec.obs, ActionSpec((2,)))
    said = refusal(tmp_path, other, behaviour="Ball")
    assert "episode 0, action" in said and "as the behaviour 'default', not 'Ball'" in said
    with pytest.raises(UsageError, match="of the behaviour 'Ball', but of 'default'"):
        load_demonstrations(DemoConfig(path="a.npz"), spec, "Ball", tmp_path, ("Ball", "default"))


@pytest.mark.parametrize(("path", "why"), [
    ("b.npz", "is not a file, and matches none"),
    ("none/*.npz", "is not a file, and matches none"),
    ("empty", f"holds no {' or '.join(READERS)} file"),
    ("a.txt", "a.txt ends in .txt; recordings end in"),
    ("a.t*", "a.txt ends in .txt; recordings end in"),
    ("plain", "plain ends in nothing; recordings end in"),
    ("~nosuch/a.npz", "home directory"),
    ("x" * 200 + "/" + "y" * 5000, "File name too long"),
])  # fmt: skip
def test_a_path_without_files_is_named_with_its_place(tmp_path, box_spec, path, why):
    (tmp_path / "empty").mkdir()
    for name in ("a.txt", "plain", "empty/a.txt"):
        (tmp_path / name).touch()
    said = refusal(tmp_path, box_spec, path)
    assert f"demonstrations.path: {path:.200}" in said and why in said


FAULTS = {
    # arrays that differ → where, why
    "another observation": ({"0__obs__obs": None, "0__obs__seen": np.zeros((3, 3), np.float32)}, "episode 0", "expected the observations obs, got seen"),
    "another shape": ({"1__obs__obs": np.zeros((3, 4), np.float32)}, "episode 1, obs/obs", "expected float32 [3, 3], got float32 [3, 4]"),
    "no numbers": ({"0__obs__obs": np.zeros((3, 3), "U1")}, "episode 0, obs/obs", "got <U1 [3, 3]"),
    "beyond float32": ({"0__obs__obs": np.full((3, 3), 1e39)}, "episode 0, obs/obs", "not finite"),
    "neither true nor false": ({"1__terminated": np.array([0.0, 0.5])}, "episode 1, terminated", "with other numbers"),
    "not finite": ({"1__reward": np.array([1, np.nan], np.float32)}, "episode 1, reward", "not finite"),
    "another action": ({"0__action": np.zeros((2, 2), np.float32)}, "episode 0, action", "expected float32 [2, 1], got float32 [2, 2]"),
    "beyond the bounds": ({"0__action": np.full((2, 1), 1.5, np.float32)}, "episode 0, action", "expected continuous actions in [-1, 1]"),
    "an end in the middle": ({"0__truncated": np.array([True, True])}, "episode 0, truncated", "true before the last step"),
    "nothing done": ({"0__reward": np.zeros(0, np.float32)}, "episode 0, reward", "expected at least one step, got float32 [0]"),
    "a missing array": ({"1__action": None}, "1/action", "it is missing"),
    "no list": ({"behaviour": None}, "behaviour", "it is missing"),
    "no list of names": ({"behaviour": np.array("default")}, "behaviour", "expected one name for each episode"),
    "no names": ({"behaviour": np.zeros(2, [("a", "f4", 2)])}, "behaviour", "expected one name for each episode"),
    "no truth": ({"1__terminated": np.zeros(2, "f4,i4")}, "episode 1, terminated", "expected bool [2], got"),
    "objects": ({"0__reward": np.array([None, 1], object)}, "0/reward", "Object arrays cannot be loaded"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_an_episode_that_does_not_fit_is_named_with_file_episode_and_field(tmp_path, spec, fault):
    changed, where, why = FAULTS[fault]
    rewrite(tmp_path / "a.npz", tmp_path / "b.npz", **changed)
    said = refusal(tmp_path, spec, "b.npz")
    assert f"{tmp_path / 'b.npz'}, {where}" in said and why in said, said


def test_choices_are_checked_too(tmp_path):
    """Those that were made, and those that were seen."""
    spec = record(tmp_path / "a.npz", MASKED, 1)
    with np.load(tmp_path / "a.npz") as file:
        action, mask = file["0/action"].copy(), file["0/action_mask"].copy()
    mask[0, action[0].argmax()] = False
    for changed, why in (
        ({"0__action": 0 * action}, "expected one choice among"),
        ({"0__action_mask": mask}, "action_mask forbids"),
        ({"0__obs__obs": np.full(5, 6, np.uint8)}, "expected choices among [6], from 0 on"),
    ):
        rewrite(tmp_path / "a.npz", tmp_path / "b.npz", **changed)
        assert why in refusal(tmp_path, spec, "b.npz")


@pytest.mark.parametrize(
    "content", [lambda whole: whole[: len(whole) // 2], lambda whole: b"", lambda whole: b"no"]
)
def test_a_file_that_is_no_recording_is_refused(tmp_path, spec, content):
    (tmp_path / "b.npz").write_bytes(content((tmp_path / "a.npz").read_bytes()))
    assert "it is not a recording" in refusal(tmp_path, spec, "b.npz")


def npy(shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return stream.getvalue() + bytes(8)


def bad_header(text: bytes) -> bytes:
    return b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text + bytes(5000)


@pytest.mark.parametrize(
    "content", [npy((2**50,)), npy((-1, -2)), *map(bad_header, (b"{", b"{[]: 1}", b"-" * 9000))]
)
def test_a_header_that_cannot_be_read_or_claims_too_much_is_refused(tmp_path, spec, content):
    """numpy evaluates it as Python, where anything may be raised."""
    rewrite(tmp_path / "a.npz", tmp_path / "b.npz", **{"0__reward": None})
    with zipfile.ZipFile(tmp_path / "b.npz", "a") as archive:
        archive.writestr("0/reward.npy", content)
    assert "b.npz, 0/reward\n  why    it cannot be read" in refusal(tmp_path, spec, "b.npz")


def test_bytes_at_random_are_survived(tmp_path, rng):
    spec = record(tmp_path / "good.npz", HYBRID, 2, limit=4)
    whole, refused = (tmp_path / "good.npz").read_bytes(), 0
    for _ in range(60):
        data = bytearray(whole)
        for at in rng.integers(len(data), size=rng.integers(1, 6)):
            data[at] = rng.integers(256)
        (tmp_path / "a.npz").write_bytes(data)
        try:
            load(tmp_path, spec)
        except UsageError:
            refused += 1
    assert refused > 0


def test_what_is_written_by_hand_is_what_was_recorded(tmp_path):
    """In the types that numpy takes by itself, without what can be left out; the digest tells no difference."""
    spec = record(tmp_path / "a.npz", HYBRID, 2)
    wide = {"f": np.float64, "u": np.int64, "i": np.int64, "b": np.int64}
    with np.load(tmp_path / "a.npz") as file:
        own = {name: file[name] for name in file.files if name == "behaviour" or "/" in name}
    left_out = ("action_mask", "carry", "truncated", "z", "behaviour_logp")
    plain = {
        name: value.astype(wide.get(value.dtype.kind, value.dtype))
        for name, value in own.items()
        if not name.endswith(left_out)
    }
    np.savez(tmp_path / "b.npz", **plain)
    a, b = (load(tmp_path, spec, f"{name}.npz") for name in "ab")
    assert a.digests["a.npz"] == b.digests["b.npz"]


def test_a_link_to_itself_is_refused(tmp_path, spec):
    (tmp_path / "loop.npz").symlink_to("loop.npz")
    assert "loop.npz" in refusal(tmp_path, spec, "*.npz")
