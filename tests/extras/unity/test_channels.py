from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from algorithm.core.errors import UsageError
from algorithm.env.config import UnityArgs
from algorithm.env.parameters.config import Constant, read_parameters
from algorithm.env.parameters.curricula import ParameterSource
from algorithm.env.parameters.rules import wrong_numbers
from algorithm.extras.unity.channels import PlayerChannels, Statistics, load_channels
from algorithm.extras.unity.testing.channels import Channels

SAMPLED = {
    "size": 1.5,
    "mass": {"sampler_type": "uniform", "sampler_parameters": {"min_value": 4, "max_value": 12}},
    "wind": {"sampler_type": "gaussian", "sampler_parameters": {"mean": 0, "st_dev": 3}},
    "place": {"sampler_type": "multirangeuniform", "sampler_parameters": {"intervals": [[0, 1], [4, 6]]}},
}
SAMPLERS = ParameterSource(read_parameters(SAMPLED)).samplers


def channels(seed: int = 1, *, classes: Any = (), watched: bool = False, **args: Any) -> PlayerChannels:
    return PlayerChannels(
        UnityArgs(**args),
        watched=watched,
        classes=classes,
        seed=seed,
        statistics=Statistics(),
    )


def sent(made: PlayerChannels) -> list[dict[str, Any]]:
    """Return what the scripted player understands of all that is queued."""
    from mlagents_envs.side_channel.side_channel_manager import SideChannelManager

    received: list[dict[str, Any]] = []
    Channels(received.append).receive(bytes(SideChannelManager(made.all).generate_side_channel_messages()))
    return received


@pytest.mark.parametrize(
    ("watched", "expected"),
    [(False, ([100, 50], 2, 10.0, -1, 60)), (True, ([1280, 720], 2, 1.0, -1, 0))],
    ids=("alone", "watched"),
)
def test_the_engine_is_set_and_a_person_sees_real_time_in_a_large_window(watched, expected):
    made = channels(watched=watched, width=100, height=50, time_scale=10.0, quality_level=2)
    engine = {line["setting"]: line["value"] for line in sent(made) if line["kind"] == "engine"}
    names = ("screen", "quality_level", "time_scale", "target_frame_rate", "capture_frame_rate")
    assert engine == dict(zip(names, expected, strict=True))


def test_a_parameter_is_sent_once_and_again_where_it_is_another_with_a_seed_of_the_player_s() -> None:
    def lines(seed: int) -> list[dict[str, dict[str, Any]]]:
        made, found = channels(seed), []
        sent(made)
        for changed in ({}, {}, {"mass": Constant(value=3.0)}, SAMPLERS):
            made.send({**SAMPLERS, **changed})
            found.append({line.pop("name"): line for line in sent(made)})
        return found

    first, nothing, constant, back = lines(1)
    assert {name: (line["sampler"], line["numbers"]) for name, line in first.items()} == {
        "size": ("number", [1.5]),
        "mass": ("uniform", [4, 12]),
        "wind": ("gaussian", [0, 3]),
        "place": ("multirange", [0, 1, 4, 6]),
    }
    assert (nothing, [*constant], [*back]) == ({}, ["mass"], ["mass"])
    assert constant["mass"]["numbers"] == [3.0] and back["mass"]["numbers"] == [4, 12]
    seeds = [line["seed"] for found in (first, back, lines(2)[0]) for line in found.values()]
    assert len({seed for seed in seeds if seed is not None}) == 7
    assert lines(1) == [first, nothing, constant, back]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("much", "it is 'much'"),
        (-1e39, "it is -1e+39"),
        (10**400, "it is 1000"),
        ({"uniform": [0, 1]}, "it is {'uniform'"),
    ],
    ids=lambda part: str(part)[:20],
)
def test_a_number_that_is_none_is_refused(value: object, why: str) -> None:
    (found,) = wrong_numbers({"gravity": value, "size": 1, "on": True})
    assert found.keys == ("reset_config.gravity",) and why in found.why


def test_a_name_that_unity_cannot_read_is_refused() -> None:
    assert [found.keys for found in wrong_numbers({"größe": 1})] == [("reset_config.größe",)]


OWN = """
import uuid
from algorithm.extras.unity.package import load
load()
from mlagents_envs.side_channel import SideChannel

class Weather(SideChannel):
    def __init__(self):
        super().__init__(uuid.UUID("621f0a70-4f87-11ea-a6bf-784f4387d1f7"))

    def on_message_received(self, msg):
        pass

class Needy(Weather):
    def __init__(self, what):
        super().__init__()

class NoChannel:
    pass
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task's folder with channels of its own."""
    (tmp_path / "own_weather.py").write_text(OWN)
    return tmp_path


def test_a_users_channel_is_one_of_the_players(task: Path) -> None:
    assert type(channels(classes=load_channels(["own_weather:Weather"], task)).all[-1]).__name__ == "Weather"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["own_weather:Needy"], "missing 1 required positional argument"),
        (["own_weather:NoChannel"], "is not a subclass"),
        (["own_weather:Absent"], "has no attribute 'Absent'"),
        (["Weather"], "cannot be used"),
        (["own_absent:Weather"], "No module named 'own_absent'"),
    ],
)
def test_what_is_no_channel_is_refused(task: Path, names: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        channels(classes=load_channels(names, task))


def test_statistics_are_reduced_as_they_ask_for_and_forgotten() -> None:
    one, other = Statistics(), Statistics()
    ways = {"mean": "AVERAGE", "sum": "SUM", "last": "MOST_RECENT", "histogram": "HISTOGRAM"}
    for name, how in ways.items():
        for value in (1.0, 2.0):
            one.add(name, value, how)
        if name != "histogram":
            other.add(name, 6.0, how)
    assert one.take(other) == {"unity/mean": 3, "unity/sum": 9, "unity/last": 6, "unity/histogram": 1.5}
    assert one.take(other) == {}
