"""A player without a trainer: its agents follow a policy of their own, and all they do is recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
from google.protobuf.internal.encoder import _VarintBytes

from algorithm.extras.unity.package import demo_messages
from algorithm.extras.unity.spaces import decode_images
from algorithm.extras.unity.testing.__main__ import parse
from algorithm.extras.unity.testing.academy import Academy, QuitCommandError
from algorithm.extras.unity.testing.faults import FaultPlan
from algorithm.extras.unity.testing.messages import (
    QUIT,
    AgentInfoProto,
    BrainParametersProto,
    UnityInputProto,
    UnityOutputProto,
)
from algorithm.extras.unity.testing.scenes import TASKS
from algorithm.extras.unity.testing.tasks import Pick, Spot

Meta, _, Pair = demo_messages()

from mlagents_envs.communicator_objects.agent_action_pb2 import AgentActionProto  # noqa: E402


def repeat(info: AgentInfoProto) -> AgentActionProto:
    """The best policy of ``continuous``."""
    return AgentActionProto(continuous_actions=info.observations[0].float_data.data)


def pick(info: AgentInfoProto) -> AgentActionProto:
    """The best policy of ``branches``: what is shown, or the next one where that is masked."""
    shown, masked = (
        np.split(np.array(row), [Pick.sizes[0]])
        for row in (info.observations[0].float_data.data, info.action_mask)
    )
    best = [int(one.argmax()) for one in shown]
    rows = zip(best, masked, Pick.sizes, strict=True)
    return AgentActionProto(discrete_actions=[(at + bool(mask[at])) % size for at, mask, size in rows])


def spot(info: AgentInfoProto) -> AgentActionProto:
    """The best policy of ``camera``: the brightest quarter."""
    image = decode_images(info.observations[0].compressed_data, (Spot.size, Spot.size, 3), [])
    half = Spot.size // 2
    quarters = image.reshape(2, half, 2, half, 3).sum((1, 3, 4), dtype=np.int64)
    return AgentActionProto(discrete_actions=[int(quarters.argmax())])


class Recorder:
    """In the place of a connection: policies of behaviours, and a ``.demo`` of each as ML-Agents writes it.

    steps: messages until the end
    """

    def __init__(
        self, folder: Path, policies: Mapping[str, Callable[[AgentInfoProto], AgentActionProto]], steps: int
    ):
        self._folder, self._policies, self._left = folder, policies, steps
        self._files: dict[str, BinaryIO] = {}
        self._records: dict[str, int] = {}
        self.returns: dict[str, list[float]] = {name: [] for name in policies}

    def exchange(self, output: UnityOutputProto | None) -> UnityInputProto:
        answer = UnityInputProto()
        answer.rl_initialization_input.communication_version = "1.5.0"
        if output is None or not output.HasField("rl_output"):
            return answer
        for brain in output.rl_initialization_output.brain_parameters:
            self._open(brain)
        for name, infos in output.rl_output.agentInfos.items():
            own = name.partition("?")[0]
            for info in infos.value:
                action = AgentActionProto() if info.done else self._policies[own](info)
                self._write(own, Pair(agent_info=info, action_info=action))
                if info.done:
                    self.returns[own].append(info.reward)  # episodes of one decision
                else:
                    answer.rl_input.agent_actions[name].value.append(action)
        self._left -= 1
        if not self._left:
            answer.rl_input.command = QUIT
        return answer

    def close(self) -> None:
        """Write how much there is."""
        for name, file in self._files.items():
            done = self.returns[name]
            numbers = {"number_steps": self._records[name], "number_episodes": len(done) + 1}
            meta = Meta(api_version=1, mean_reward=np.mean(done), **numbers)
            file.write(meta.SerializeToString())  # as C# does
            file.seek(0)
            self._record(file, meta)
            file.close()

    def _open(self, brain: BrainParametersProto) -> None:
        name = brain.brain_name.partition("?")[0]
        file = self._files[name] = (self._folder / f"{name}.demo").open("wb")
        self._records[name] = 0
        self._record(file, Meta(api_version=1))
        file.seek(33)
        self._record(file, brain)

    def _write(self, name: str, pair: object) -> None:
        self._records[name] += 1
        self._record(self._files[name], pair)

    def _record(self, file: BinaryIO, message: object) -> None:
        data = message.SerializeToString()  # type: ignore[attr-defined]
        file.write(_VarintBytes(len(data)) + data)


POLICIES = {"Continuous": repeat, "Branches": pick, "Camera": spot}


def record(folder: Path, task: str, steps: int) -> dict[str, float]:
    """Record so many steps by the best policies; return the mean return of each behaviour."""
    recorder = Recorder(folder, POLICIES, steps)
    try:
        Academy(parse([f"--task={task}"]), FaultPlan([], None), None).run(recorder, TASKS[task])  # type: ignore[arg-type]
    except QuitCommandError:
        recorder.close()
    return {name: float(np.mean(done)) for name, done in recorder.returns.items() if done}
