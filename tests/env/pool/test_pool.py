"""The pool's bookkeeping against an executor that follows a script."""

import numpy as np

from algorithm.core.spec import DEFAULT_BEHAVIOUR, ActionSpec, AgentSpec, ObsSpec
from algorithm.env.pool.env_group import GroupFailure, GroupInfo
from algorithm.env.pool.pool import EnvPool
from algorithm.env.pool.step_buffers import StepBuffers


class Scripted:
    """Two environments: 0 ``fails`` in its step; in the reset that follows their process dies, once."""

    arrangement = "2 by the book"
    spec = AgentSpec(ObsSpec(("obs",), ((1,),), ("float32",)), ActionSpec(continuous=1))
    info = GroupInfo(name="Scripted-v0", spec=spec, time_limit=None)

    def __init__(self, fails: bool = True) -> None:
        self._fails = fails
        self.buffers = StepBuffers(self.spec, 2)
        self.resets: list[list[int]] = []
        self.deaths = [(0, 1)]

    def reset(self, indices):
        self.resets.append(list(indices))
        self.buffers.obs["obs"][list(indices), 0] = self.buffers.seed[list(indices)]
        if len(self.resets) > 1 and self.deaths:
            return [
                GroupFailure(envs=self.deaths.pop(), culprit=None, what="worker_0 died", why="exit code 1")
            ]
        return []

    def step(self):
        self.buffers.reward[:] = 1.0
        self.buffers.obs["obs"][:] = -1.0
        if not self._fails:
            return []
        self.buffers.write_executed(0, np.ones(1, np.float32), by_person=True)
        self.buffers.mark_skipped([0])
        return [GroupFailure(envs=(0,), culprit=0, what="failed in step", why="it broke")]

    def repeat(self, done):
        assert [len(actions) for actions in done.values()] == [0, 0], "both have just begun"
        return self.reset(done)

    def close(self) -> None:
        pass


def test_a_worker_that_dies_while_one_copy_is_reset_costs_the_others_their_step():
    """The result of environment 1's step is lost with the process, so nothing of it may be stored."""
    executor, faults = Scripted(), []
    pool = EnvPool(executor, seed_of=lambda i, episode: 10 * i + episode, restarts=5, on_fault=faults.append)
    pool.reset()
    result = pool.step({DEFAULT_BEHAVIOUR: np.zeros((2, 1), np.float32)})[DEFAULT_BEHAVIOUR]
    assert executor.resets == [[0, 1], [0], [0, 1]]
    assert result.skipped.tolist() == [True, True] and result.executed is None
    assert result.reward.tolist() == [0.0, 0.0]
    assert result.obs["obs"][:, 0].tolist() == [2, 11]  # episode 1 of environment 0 was the one that died
    assert [fault.what for fault in faults] == ["failed in step", "worker_0 died"]


def test_a_copy_that_began_unasked_is_announced_after_a_resume_as_well():
    """Environment 0 is reset; its process dies, and environment 1 has to report its new episode later."""
    executors = [Scripted(fails=False), Scripted(fails=False)]
    executors[1].deaths = []
    pools = [
        EnvPool(e, seed_of=lambda i, episode: 10 * i + episode, restarts=5, on_fault=lambda fault: None)
        for e in executors
    ]
    for pool in pools:
        pool.reset()
    action = {DEFAULT_BEHAVIOUR: np.zeros((2, 1), np.float32)}
    pools[0].step(action)
    pools[0].reset([0])
    assert executors[0].resets == [[0, 1], [0], [0, 1]]
    assert pools[1].resume(pools[0].state()) == {}
    assert executors[1].buffers.obs["obs"][:, 0].tolist() == [2, 11]
    for pool in pools:
        result = pool.step(action)[DEFAULT_BEHAVIOUR]
        assert result.skipped.tolist() == [False, True]
        assert result.obs["obs"][:, 0].tolist() == [-1, 12]
        assert pool.step(action)[DEFAULT_BEHAVIOUR].skipped is None
