"""Actions at fixed times."""

from contextlib import closing

import numpy as np
import pytest

from algorithm.core.errors import EnvError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.gym import GymEnv
from algorithm.env.pool.executor import InProcessExecutor
from algorithm.env.pool.pace import PacedPool
from tests.lib.clock import Time
from tests.lib.toys import Toy


def times_of_actions(pace, time, spent):
    """Return when each action was sent, after steps and learning of ``spent`` seconds."""
    times = []
    for seconds in spent:
        pace.wait()
        times.append(round(time.now - 100.0, 9))
        time.spend(seconds)
        pace.stepped()
    return times


def test_actions_keep_their_times_whatever_is_spent_between_them():
    time = Time()
    pace = time.pace()
    assert times_of_actions(pace, time, [0.02, 0.099, 0.0, 0.05]) == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert pace.metrics() == {"time/overrun": 0.0, "time/delay_ms": 0.0}
    assert pace.metrics() == {}


def test_a_late_action_is_counted_and_missed_times_are_not_made_up_for():
    time = Time()
    pace = time.pace()
    assert times_of_actions(pace, time, [0.104, 0.11, 0.25, 0.0, 0.0]) == pytest.approx(
        [0.0, 0.104, 0.214, 0.464, 0.5]
    )
    late = pace.metrics()
    assert late["time/overrun"] == pytest.approx(2 / 5)  # by 14 and 164 ms; 4 ms are within a twentieth
    assert late["time/delay_ms"] == pytest.approx(164.0)


def test_between_episodes_nothing_is_timed():
    time = Time()
    pace = time.pace()
    times_of_actions(pace, time, [0.01, 0.01])
    pace.rest()
    assert not pace.must_pause()
    time.spend(5.0)  # an update and an evaluation
    assert times_of_actions(pace, time, [0.01, 0.01]) == pytest.approx([5.11, 5.21])
    assert pace.metrics()["time/overrun"] == 0.0
    assert not pace.must_pause(), "what came between episodes is not the time of an update"


def test_learning_pauses_when_an_update_would_make_the_action_late():
    time = Time()
    pace = time.pace()
    times_of_actions(pace, time, [0.02])
    updates = 0
    while not pace.must_pause():
        updates += 1
        time.spend(0.03)
    assert updates == 2  # 80 ms are left, and the third of 30 ms each would end behind them
    time.spend(0.015)  # acting
    pace.wait()
    assert time.now == pytest.approx(100.1)
    pace.stepped()
    assert not pace.must_pause()
    time.spend(0.03)
    assert not pace.must_pause()  # 70 ms are left for an update of 30 and acting of 15
    time.spend(0.03)
    assert pace.must_pause()


def test_a_rate_that_no_step_reaches_is_refused():
    time = Time()
    with pytest.raises(EnvError, match="cannot be stepped 10 times a second"):
        times_of_actions(time.pace(), time, [0.12] * 11)
    time = Time()
    times_of_actions(time.pace(), time, [0.12] * 9 + [0.09] + [0.12] * 5)


def test_a_pool_keeps_the_times_of_its_episodes():
    """Each of 20 steps; the episodes of ten steps are 5 s apart."""
    time = Time()

    class Slow(Toy):
        def reset(self, **kwargs):
            time.spend(5.0)
            return super().reset(**kwargs)

        def step(self, action):
            times.append(round(time.now - 100.0, 6))
            time.spend(0.03)
            return self._seen(), 0.0, False, len(times) % 10 == 0, {}

    times: list[float] = []
    executor = InProcessExecutor(lambda i: GymEnv(Slow()), 1, timeout=-1)
    with closing(
        PacedPool(executor, pace=time.pace(), seed_of=lambda i, e: 0, restarts=0, on_fault=pytest.fail)
    ) as env:
        env.reset()
        for _ in range(5):
            env.step({DEFAULT_BEHAVIOUR: np.zeros((1, 1), np.float32)})
        saved = env.state()
        env.reset()
        assert env.must_pause() is False, "a reset from outside, too, begins an episode"
        assert env.resume(saved).keys() == {0} and len(times) == 5, "nothing is repeated"
        env.reset()
        times.clear(), env.metrics()
        for _ in range(20):
            env.step({DEFAULT_BEHAVIOUR: np.zeros((1, 1), np.float32)})
        assert env.must_pause() is False, "between episodes there is time"
        assert env.metrics() == {"time/overrun": 0.0, "time/delay_ms": 0.0}
    first, second = np.split(np.array(times), 2)
    np.testing.assert_allclose(np.diff(first), 0.1)
    np.testing.assert_allclose(np.diff(second), 0.1)
    assert second[0] - first[-1] > 5.0


def test_an_update_without_another_after_it_is_timed_by_the_next_action():
    time = Time()
    pace = time.pace()
    times_of_actions(pace, time, [0.01])
    assert not pace.must_pause()
    time.spend(0.15)  # the only update of the step, too long
    assert times_of_actions(pace, time, [0.01]) == pytest.approx([0.16])
    assert pace.must_pause()
