from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from algorithm.core.errors import EnvError, UsageError
from algorithm.env.config import UnityArgs
from algorithm.env.rules import EnvParameter, read_parameters, wrong_parameters
from algorithm.env.unity.channels import PlayerChannels, Statistics, load_channels
from tests.unity_player.channels import ECHO, Channels, packed_string, split

SAMPLED = {
    "size": 1.5,
    "mass": {"uniform": [4, 12]},
    "wind": {"gaussian": [0, 3]},
    "place": {"multirange": [[0, 1], [4, 6]]},
}


def channels(seed: int = 1, *, own: Any = (), watched: bool = False, **args: Any) -> PlayerChannels:
    return PlayerChannels(
        UnityArgs(**args),
        watched=watched,
        parameters=read_parameters(SAMPLED),
        own=own,
        seed=seed,
        statistics=Statistics(),
    )


def sent(made: PlayerChannels) -> list[dict[str, Any]]:
    """Return what the scripted player understands of all that is queued."""
    from mlagents_envs.side_channel.side_channel_manager import SideChannelManager

    received: list[dict[str, Any]] = []
    data = bytes(SideChannelManager(made.all).generate_side_channel_messages())
    assert list(split(data)) or not data
    Channels(received.append).receive(data)
    return received


def test_the_engine_is_set_once_and_parameters_with_every_reset() -> None:
    made = channels(width=100, height=50, time_scale=10.0, quality_level=2)
    engine = {line["setting"]: line["value"] for line in sent(made) if line["kind"] == "engine"}
    assert engine == {
        "screen": [100, 50],
        "quality_level": 2,
        "time_scale": 10.0,
        "target_frame_rate": -1,
        "capture_frame_rate": 60,
    }
    resets = []
    for _ in range(2):
        made.before_reset()
        resets.append({line.pop("name"): line for line in sent(made)})
    assert {name: (line["sampler"], line["numbers"]) for name, line in resets[0].items()} == {
        "size": ("number", [1.5]),
        "mass": ("uniform", [4, 12]),
        "wind": ("gaussian", [0, 3]),
        "place": ("multirange", [0, 1, 4, 6]),
    }
    seeds = {line["seed"] for reset in resets for line in reset.values() if line["seed"] is not None}
    assert len(seeds) == 6, "of each sampler and each reset"


def test_seeds_of_samplers_follow_from_the_player_s() -> None:
    def seeds(seed: int) -> list[int]:
        made = channels(seed)
        made.before_reset()
        return [line["seed"] for line in sent(made) if line.get("seed") is not None]

    assert seeds(1) == seeds(1) and not set(seeds(1)) & set(seeds(2))


def test_a_person_sees_real_time_in_a_large_window() -> None:
    engine = {line["setting"]: line["value"] for line in sent(channels(watched=True))}
    assert engine["screen"] == [1280, 720]
    assert (engine["time_scale"], engine["capture_frame_rate"]) == (1.0, 0)


@pytest.mark.parametrize(
    ("value", "why", "fix"),
    [
        ({"unifrom": [0, 1]}, "no sampler 'unifrom'", "did you mean uniform"),
        ({"uniform": [1, 0]}, "1 is above 0", "low, high"),
        ({"uniform": [1]}, "uniform of [1]", "low, high"),
        ({"uniform": [0, float("nan")]}, "uniform of", "low, high"),
        ({"gaussian": [0, -1]}, "deviation is negative", "mean, deviation"),
        ({"multirange": [0, 1]}, "multirange of", "[low, high]"),
        ({"multirange": []}, "multirange of", "[low, high]"),
        ("much", "it is 'much'", "give a number"),
        (float("inf"), "it is inf", "give a number"),
        (-1e39, "it is -1e+39", "give a number up to ±3.4e+38"),
        (10**400, "it is 1000", "give a number up to"),
        ({"uniform": [0, 1e39]}, "uniform of [0, 1e+39]", "low, high"),
    ],
    ids=lambda part: str(part)[:20],
)
def test_a_parameter_that_is_none_is_refused(value: object, why: str, fix: str) -> None:
    (found,) = wrong_parameters({"gravity": value, "size": 1})
    assert found.keys == ("reset_config.gravity",) and why in found.why and fix in found.fix


def test_a_name_that_unity_cannot_read_is_refused() -> None:
    assert [found.keys for found in wrong_parameters({"größe": 1})] == [("reset_config.größe",)]
    assert read_parameters(None) == {} and read_parameters({"on": True}) == {"on": EnvParameter("", (1.0,))}


OWN = """
import uuid
from algorithm.env.unity.package import load
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

class Broken(Weather):
    def on_message_received(self, msg):
        text = msg.read_string()
        if text == "short":
            msg.get_raw_bytes()
            msg.offset -= 1
            msg.read_int32()
        self._look_up(text)

    def _look_up(self, text):
        {"sun": 1}[text]

class NoChannel:
    pass
"""


def test_own_channels_lie_in_the_task_s_folder(tmp_path: Path) -> None:
    (tmp_path / "own_weather.py").write_text(OWN)
    (weather,) = load_channels(["own_weather:Weather"], tmp_path)
    assert type(channels(own=[weather]).all[-1]) is weather
    with pytest.raises(UsageError, match="have the same id"):
        channels(own=[weather, weather])
    (needy,) = load_channels(["own_weather:Needy"], tmp_path)
    with pytest.raises(UsageError, match="Needy cannot be made"):
        channels(own=[needy])
    for name in ("own_weather:NoChannel", "own_weather:Absent", "Weather"):
        with pytest.raises(UsageError, match="is no side channel") as raised:
            load_channels([name], tmp_path)
        assert raised.value.where == "base_config.unity_args.side_channels"
    with pytest.raises(UsageError, match="cannot be imported"):
        load_channels(["own_absent:Weather"], tmp_path)


def test_what_an_own_channel_raises_names_it_and_is_no_wrong_message(tmp_path: Path) -> None:
    from mlagents_envs.side_channel.side_channel_manager import SideChannelManager

    (tmp_path / "own_broken.py").write_text(OWN)
    made = channels(own=load_channels(["own_broken:Broken"], tmp_path))
    manager = SideChannelManager(made.all)

    def receive(text: str) -> None:
        queue = Channels(lambda _: None)
        queue.send(ECHO, packed_string(text))
        manager.process_side_channel_message(queue.take())

    receive("sun")
    with pytest.raises(EnvError, match="the side channel Broken has failed") as raised:
        receive("rain")
    assert raised.value.where == "base_config.unity_args.side_channels"
    *_, place, code, last = [line for line in raised.value.why.splitlines() if "^" not in line]
    assert "own_broken.py" in place and place.endswith("in _look_up")
    assert (code.strip(), last) == ('{"sun": 1}[text]', "KeyError: 'rain'")
    assert "guarded" not in raised.value.why
    with pytest.raises(struct.error):
        receive("short")


def test_statistics_are_reduced_as_they_ask_for_and_forgotten() -> None:
    one, other = Statistics(), Statistics()
    for value in (1.0, 2.0):
        one.add("mean", value, "AVERAGE")
        one.add("sum", value, "SUM")
        one.add("last", value, "MOST_RECENT")
        one.add("histogram", value, "HISTOGRAM")
    other.add("mean", 6.0, "AVERAGE")
    other.add("sum", 6.0, "SUM")
    other.add("last", 5.0, "MOST_RECENT")
    assert one.take(other) == {"unity/mean": 3, "unity/sum": 9, "unity/last": 5, "unity/histogram": 1.5}
    assert one.take(other) == {}
