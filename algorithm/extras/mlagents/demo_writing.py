"""Writing of episodes as ``.demo`` files of Unity's ML-Agents."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from algorithm.core.data import Array
from algorithm.core.errors import UsageError
from algorithm.core.spec import ActionSpec, AgentSpec
from algorithm.demos.episode import Draft, FaultyRecordingError, RecordedEpisode, shown
from algorithm.extras.mlagents.demo_file import META_BYTES, write_record
from algorithm.extras.mlagents.demo_reading import messages_of_demos

_NONE, _TRANSLATIONAL = 1, 2  # dimension properties
_LONGEST = 11  # letters of a name: more do not fit beside the largest numbers
_ROUNDED = 1e-3  # rounding allowed, as a share of the range of an observation
_WHOLE = 2**24  # up to here float32 holds every whole number
_MOST_CHANNELS = 64  # of an observation that is written as an image


class DemoWriter:
    """Writer of one behaviour's episodes to a file; an :class:`~algorithm.demos.episode.EpisodeWriter`.

    The file appears complete at the end, and replaces one of that name. It does not hold what belongs to the
    policy (carry, z, log-probabilities). Raises UsageError without the package ``mlagents-envs``.
    """

    def __init__(self, path: Path, spec: AgentSpec, behaviour: str) -> None:
        self.target = str(path)
        self._draft = Draft(path)
        self._messages = messages_of_demos()
        self._spec = spec
        self._behaviour = behaviour
        self._file: BinaryIO | None = None

    def begin(self) -> None:
        """Open the file and write meta data without numbers, as of a recorder that has not closed it."""
        self._encoder = StepEncoder(self._messages.pair, self._spec)
        self._steps = self._episodes = 0
        self._total = 0.0
        self._file = self._draft.open()
        write_record(self._file, meta_of(self._messages.meta, self._draft.path.stem))
        self._file.seek(META_BYTES + 1)
        write_record(self._file, brain_of(self._messages.brain, self._spec.action, self._behaviour))

    def write(self, episode: RecordedEpisode) -> None:
        """Append an episode. Raises UsageError for numbers that float32 does not hold to the last bit."""
        assert self._file is not None, "begin comes first"
        try:
            for pair in self._encoder.pairs(episode):
                write_record(self._file, pair)
        except FaultyRecordingError as error:
            self.discard()
            raise UsageError(
                "a .demo file cannot hold this episode",
                where=f"episode {episode.number}, {error.where}",
                why=error.why,
                fix="record to a .npz file",
            ) from error
        self._file.flush()
        self._steps += len(episode.reward) + 1
        self._episodes += 1
        self._total += float(np.sum(episode.reward, dtype=np.float64))

    def finish(self) -> None:
        """Write the meta data again, now with their numbers, and give the file its name.

        Does nothing after an episode that was refused, since the file is gone then.
        """
        if self._file is None:
            return
        self._file.seek(0)
        numbers = {
            "number_steps": self._steps,
            "number_episodes": self._episodes,
            "mean_reward": self._total / self._episodes,
        }
        write_record(self._file, meta_of(self._messages.meta, self._draft.path.stem, **numbers))
        self._draft.finish()

    def discard(self) -> None:
        """Remove the unfinished file."""
        self._file = None
        self._draft.discard()


def meta_of(message: Any, name: str, **numbers: float) -> Any:  # noqa: ANN401 - protobuf messages
    """Return meta data of at most 32 bytes, with the beginning of the name in its plain characters."""
    plain = re.sub(r"[^A-Za-z0-9 -]", "", name)[:_LONGEST]
    return message(api_version=1, demonstration_name=plain, **numbers)


def brain_of(message: Any, action: ActionSpec, behaviour: str) -> Any:  # noqa: ANN401 - protobuf messages
    """Return the parameters of a behaviour, also in the form of older releases, if they had such actions."""
    brain = message(brain_name=behaviour)
    brain.action_spec.num_continuous_actions = action.continuous
    brain.action_spec.num_discrete_actions = len(action.branches)
    brain.action_spec.discrete_branch_sizes.extend(action.branches)
    if not (action.continuous and action.branches):
        brain.vector_action_size_deprecated.extend(action.branches or [action.continuous])
        brain.vector_action_space_type_deprecated = 0 if action.branches else 1
    return brain


class StepEncoder:
    """Encoder of an agent's episodes to messages. pair: class of the messages."""

    def __init__(self, pair: Any, spec: AgentSpec) -> None:  # noqa: ANN401 - a protobuf message
        self._pair = pair
        self._action = spec.action
        leaves = zip(spec.obs.items(), spec.obs.axes, strict=True)
        self._fill: dict[str, Callable[[Any, Array], None]] = {}
        self._templates = {}
        for (name, shape, dtype), axes in leaves:
            image = dtype == "uint8" and len(shape) == 3 and axes != "CHW" and shape[2] <= _MOST_CHANNELS
            last = axes == "HWC" or image
            properties = [_TRANSLATIONAL, _TRANSLATIONAL, _NONE] if last else [_NONE] * len(shape)
            template: dict[str, Any] = {"name": name, "shape": shape, "dimension_properties": properties}
            if image:
                template |= {"compression_type": 1, "compressed_channel_mapping": _png_channels(shape[2])}
            self._templates[name] = template
            self._fill[name] = _fill_image if image else _fill_numbers

    def pairs(self, episode: RecordedEpisode) -> Iterator[Any]:
        """Yield the L + 1 messages of an episode. Raises FaultyRecordingError if a value would change."""
        length = len(episode.reward)
        seen = {name: _check_exact(name, episode.obs[name]) for name in self._templates}
        terminated = bool(episode.terminated[-1])
        for t in range(length + 1):
            done = t == length
            pair = self._pair()
            info = pair.agent_info
            info.id = episode.agent
            info.reward = float(episode.reward[t - 1]) if t else 0.0
            info.done = done
            info.max_step_reached = done and not terminated
            if not episode.action_mask[t].all():
                info.action_mask.extend((~episode.action_mask[t]).tolist())
            for name, template in self._templates.items():
                self._fill[name](info.observations.add(**template), seen[name][t])
            # ML-Agents reads an action of the last message, too.
            self._act(pair.action_info, np.zeros(self._action.size) if done else episode.action[t])
            yield pair

    def _act(self, message: Any, action: Array) -> None:  # noqa: ANN401 - a protobuf message
        """Write a flat action [A] into a message."""
        spec = self._action
        message.continuous_actions.extend(action[spec.discrete :].tolist())
        message.discrete_actions.extend(int(action[where].argmax()) for where in spec.branch_slices)


def _png_channels(channels: int) -> list[int]:
    """Return the image's channel for each channel of its PNGs of three; -1 for padding."""
    return [0, 0, 0] if channels == 1 else [*range(channels), *[-1] * (-channels % 3)]


def _fill_numbers(message: Any, value: Array) -> None:  # noqa: ANN401 - a protobuf message
    message.float_data.data.extend(value.ravel().tolist())


def _fill_image(message: Any, value: Array) -> None:  # noqa: ANN401 - a protobuf message
    """Write an image [H, W, channels], uint8, into a message: PNGs of three channels, one after the other."""
    from PIL import Image

    channels = value.shape[2]
    padded = np.zeros((*value.shape[:2], channels + -channels % 3), np.uint8)
    padded[..., :channels] = value
    if channels == 1:
        padded[..., 1:] = value
    png = io.BytesIO()
    for at in range(0, padded.shape[2], 3):
        Image.fromarray(np.ascontiguousarray(padded[..., at : at + 3])).save(png, "PNG", compress_level=1)
    message.compressed_data = png.getvalue()


def _check_exact(name: str, value: Array) -> Array:
    """Return an observation unchanged. Raises FaultyRecordingError if float32 numbers cannot represent it."""
    whole = value.dtype.kind in "biu"
    if value.dtype.kind != "f" and not whole:
        raise FaultyRecordingError(f"{shown(value)} is not a number", f"obs/{name}")
    changes = np.ptp(value.astype(np.float64), 0)
    rounding = np.abs(value.astype(np.float32) - value.astype(np.float64)).max(0)
    if not whole and ((rounding > _ROUNDED * changes) & (changes > 0.0)).any():
        raise FaultyRecordingError("its numbers differ by less than float32 can represent", f"obs/{name}")
    if whole and value.dtype.itemsize > 2 and (np.abs(value.astype(np.float64)) > _WHOLE).any():
        raise FaultyRecordingError(
            f"it holds numbers beyond ±{_WHOLE:,}, which float32 rounds", f"obs/{name}"
        )
    return value
