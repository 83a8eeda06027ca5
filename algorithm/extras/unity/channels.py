"""Side channels of a Unity player: settings of the engine, parameters, statistics, the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from algorithm.core.errors import UsageError, described
from algorithm.core.seeding import stream_seed
from algorithm.env.config import UnityArgs
from algorithm.env.env_id import advice, import_source, resolve_env_id
from algorithm.env.parameters.config import Constant, Gaussian, ParameterSampler, Uniform
from algorithm.extras.unity.package import load

_KEY = "base_config.unity_args.side_channels"
_WATCHED_SIZE = (1280, 720)  # pixels


class Statistics:
    """Sums of the values that players record with Unity's ``StatsRecorder``."""

    def __init__(self) -> None:
        self._series: dict[str, tuple[str, int, float, float]] = {}  # name -> how, count, sum, last value

    def add(self, name: str, value: float, how: str, *, count: int = 1, last: float | None = None) -> None:
        """Add a value, or the sum of ``count``. how: a name of the package's ``StatsAggregationMethod``."""
        _, before, total, _ = self._series.get(name, (how, 0, 0.0, 0.0))
        self._series[name] = how, before + count, total + value, value if last is None else last

    def take(self, *others: Statistics) -> dict[str, float]:
        """Return the metrics ``unity/<name>`` of these statistics and ``others``, and clear them.

        MOST_RECENT gives the value of the last player, SUM the sum, all others the mean.
        """
        merged = Statistics()
        for statistics in (self, *others):
            for name, (how, count, total, last) in statistics._series.items():
                merged.add(name, total, how, count=count, last=last)
            statistics._series = {}
        return {
            f"unity/{name}": {"MOST_RECENT": last, "SUM": total}.get(how, total / count)
            for name, (how, count, total, last) in merged._series.items()
        }


class PlayerChannels:
    """The side channels of one start of a player.

    args:       settings of the engine
    watched:    for a human viewer: real time and a large window
    classes:    of ``unity_args.side_channels``, from :func:`load_channels`
    seed:       of this start; seeds of samplers follow from it
    statistics: receive the values that the player records
    """

    def __init__(
        self,
        args: UnityArgs,
        *,
        watched: bool,
        classes: Sequence[type[Any]],
        seed: int,
        statistics: Statistics,
    ) -> None:
        load()
        from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
        from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel

        self._seed = seed
        self._sent: dict[str, tuple[ParameterSampler, int]] = {}  # name -> last value, number of messages
        self._parameters: Any = EnvironmentParametersChannel()
        engine: Any = EngineConfigurationChannel()
        width, height = _WATCHED_SIZE if watched else (args.width, args.height)
        engine.set_configuration_parameters(
            width=width,
            height=height,
            quality_level=args.quality_level,
            time_scale=1.0 if watched else args.time_scale,
            target_frame_rate=args.target_frame_rate,
            capture_frame_rate=0 if watched else args.capture_frame_rate,  # fixed, it is not real time
        )
        ours = [engine, self._parameters, _statistics_class()(statistics)]
        self.all: list[Any] = [*ours, *(kind() for kind in classes)]

    def send(self, parameters: Mapping[str, ParameterSampler]) -> None:
        """Queue a message for each parameter whose value has changed since it was sent.

        The messages go with the next exchange, a reset or a step. Each message of a sampler has its own seed.
        """
        for name, value in parameters.items():
            known, messages = self._sent.get(name, (None, 0))
            if known == value:
                continue
            self._sent[name] = value, messages + 1
            self._queue(name, value, stream_seed(self._seed, "sampler", name, messages + 1) >> 32)

    def _queue(self, name: str, value: ParameterSampler, seed: int) -> None:
        """Queue the message of a parameter; seed: 31 bits, as Unity takes."""
        channel, numbers = self._parameters, value.numbers
        if isinstance(value, Constant):
            channel.set_float_parameter(name, *numbers)
        elif isinstance(value, Uniform):
            channel.set_uniform_sampler_parameters(name, *numbers, seed)
        elif isinstance(value, Gaussian):
            channel.set_gaussian_sampler_parameters(name, *numbers, seed)
        else:
            pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
            channel.set_multirangeuniform_sampler_parameters(name, pairs, seed)


def load_channels(names: Sequence[str], folder: Path | None) -> list[type[Any]]:
    """Import the classes named ``module:Class``, also from the task's folder. Raises UsageError."""
    load()
    return [_load_channel(name, folder) for name in names]


def _load_channel(name: str, folder: Path | None) -> type[Any]:
    """Import a class, as :func:`load_channels` does all of them."""
    from mlagents_envs.side_channel.side_channel import SideChannel

    source, _, wanted = resolve_env_id(name, folder, key=_KEY).rpartition(":")
    try:
        channel: type[Any] = getattr(import_source(source), wanted)
        if not isinstance(channel(), SideChannel):
            raise TypeError(f"{wanted} is not a subclass of mlagents_envs.side_channel.SideChannel")
    except Exception as error:
        raise UsageError(
            f"the side channel {name!r} cannot be used",
            where=_KEY,
            why=described(error),
            fix=advice(error, "write module:Class, a SideChannel that can be made without arguments"),
        ) from error
    return channel


def _statistics_class() -> type[Any]:
    """Return a class of the package's channel that adds to our statistics; its base class is loaded late."""
    from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod, StatsSideChannel

    class StatisticsChannel(StatsSideChannel):  # type: ignore[misc]
        """Channel that adds values to sums instead of keeping them, since not every player's are read."""

        def __init__(self, statistics: Statistics) -> None:
            super().__init__()
            self._statistics = statistics

        def on_message_received(self, msg: Any) -> None:  # noqa: ANN401 - of the package
            name, value = msg.read_string(), msg.read_float32()
            self._statistics.add(name, value, StatsAggregationMethod(msg.read_int32()).name)

    return StatisticsChannel
