"""The watchdog: it names what is surely wrong, once, and says nothing of recorded healthy runs."""

import csv
import json
import math
from functools import partial
from pathlib import Path

import pytest

from algorithm.agents.health import WINDOW, History, Summary
from algorithm.agents.sac.family import FAMILIES
from algorithm.agents.sac.health import WATCHED, make_rules
from algorithm.config.schema import Config
from algorithm.runs.logs.metrics import METRICS
from algorithm.train.health import HealthMonitor

monitor = partial(HealthMonitor, FAMILIES["SAC"])

RECORDED = Path(__file__).resolve().parents[1] / "golden" / "health"
"""Of real runs, with the columns that are watched, to six digits."""

CART_POLE = {"start_step": 500, "batch_size": 128}
RECORDED_WITH = {
    **{"init_log_alpha": -2.3, "learning_rate": 0.0003, "tau": 0.005, "reward_scaling": False},
    **{"discrete_soft_target": True, "target_d_alpha": 0.3},
}
RETURNS = {
    "rollout/return_mean": 100.0,
    "rollout/return_min": 50.0,
    "rollout/return_max": 200.0,
    "rollout/length": 200.0,
}


def config(capacity=20_000, **sac):
    replay = {"capacity": capacity, "td_error_max": 1.0}
    return Config.model_validate({"replay_config": replay, "sac_config": {**RECORDED_WITH, **sac}})


def recorded(name):
    """Steps and metrics of a recorded run."""
    with (RECORDED / f"{name}.csv").open() as file:
        for row in csv.DictReader(file):
            step = int(row.pop("step"))
            yield step, {metric: float(cell) for metric, cell in row.items() if cell}


def summaries(count=30, start=1000, every=1000, **series):
    """Made-up summaries; a series is a number, or a function of how many came before. ``_`` is ``/``."""
    for k in range(count):
        values = {name: value(k) if callable(value) else value for name, value in series.items()}
        yield start + every * k, {**RETURNS, "loss/q": 1.0 + k, **values}


def watch(health, rows):
    """Every line that is said, with its step."""
    return [(step, line) for step, values in rows for line in health.update(step, values)]


def only_line(config, rows):
    ((_, line),) = watch(monitor(config), rows)
    return line


@pytest.mark.parametrize(
    ("name", "sac"),
    [
        ("cart_pole", {**CART_POLE, "target_d_alpha": 0.6}),
        ("cart_pole_0.7", {**CART_POLE, "target_d_alpha": 0.7}),
        ("pendulum", CART_POLE),
        ("recall", {"init_log_alpha": -4.0, "replay_ratio": 0.5, "start_step": 200}),
        ("acrobot", {"target_d_alpha": 0.9, "batch_size": 64}),
        ("pendulum_bare", {"clip_epsilon": -1.0}),
        ("cart_pole_bare", {"clip_epsilon": -1.0, "batch_size": 64}),
        ("hybrid", {"clip_epsilon": -1.0, "batch_size": 64}),
        ("hybrid_clipped", {"clip_epsilon": 0.2, "batch_size": 64}),
    ],
)
def test_recorded_healthy_runs_are_left_alone(name, sac):
    rows = list(recorded(name))
    assert len(rows) >= 6
    assert watch(monitor(config(**sac)), rows) == []


def test_a_recorded_runaway_is_told_once():
    ((step, line),) = watch(monitor(config(**CART_POLE, target_d_alpha=0.9)), recorded("cart_pole_0.9"))
    assert step == 8500  # α · H̄ · 100 = 551 passes 500; at 12,000 steps values stand at 600
    assert line == (
        "the temperature runs away: policy/alpha_d is 8.84, 88 times its start, and still grows; its bonus "
        "adds 551.2 to a value, and no episode returned more than 500 · lower sac_config.target_d_alpha (0.9)"
    )


def temperature(growth=1.5, start=0.1, part="d", **more):
    rows = {
        f"policy/alpha_{part}": lambda k: start * growth**k,
        f"policy/entropy_{part}": 0.5,
        f"policy/target_entropy_{part}": 0.5,
    }
    return summaries(**(rows | more))


def test_a_temperature_beyond_all_returns_runs_away():
    assert "policy/alpha_d" in only_line(config(), temperature())
    line = only_line(config(target_c_alpha=2), temperature(part="c"))
    assert line.endswith("· raise sac_config.target_c_alpha (2)")


@pytest.mark.parametrize(
    ("why", "sac", "rows"),
    [
        ("it belongs to the rewards", {}, {"rollout/return_max": 1e9}),
        ("it falls", {}, {"growth": 0.9, "start": 1e4}),
        ("it is large, and stays", {}, {"policy/alpha_d": 50.0}),
        ("it was set so", {"init_log_alpha": math.log(1e4)}, {"start": 1e4, "growth": 1.08}),
        ("it goes up and down", {}, {"policy/alpha_d": lambda k: 0.1 * 1.5**k * (2 if k % 4 else 1)}),
        ("it hardly grows", {}, {"growth": 1.02, "start": 20.0}),
        ("it is not learned", {"use_auto_alpha": False}, {}),
        ("nothing is known of returns", {}, {"rollout/length": math.nan}),
        ("rewards have been divided by little", {}, {"value/return_scale": 1e-6}),
    ],
)
def test_other_temperatures_are_left_alone(why, sac, rows):
    assert watch(monitor(config(**sac)), temperature(**rows)) == [], why


def test_a_target_above_every_entropy_is_out_of_reach():
    # Rewards so large that the bonus is nothing beside them, and still the entropy does not rise.
    stuck = {"policy/entropy_c": 0.69, "policy/target_entropy_c": 1.0, "rollout/return_max": 1e9}
    line = only_line(config(target_c_alpha=-1), temperature(part="c", growth=1.6, **stuck))
    assert line.startswith("the target entropy is out of reach: policy/entropy_c stays 0.31 below it")
    assert line.endswith("· raise sac_config.target_c_alpha (-1)")
    closer = {**stuck, "policy/entropy_c": lambda k: 0.69 + 0.01 * k}
    assert watch(monitor(config(target_c_alpha=-1)), temperature(part="c", growth=1.6, **closer)) == []
    near = {**stuck, "policy/entropy_c": 0.95}
    assert watch(monitor(config(target_c_alpha=-1)), temperature(part="c", growth=1.6, **near)) == []


def narrow(**more):
    """Two actions, steered to −10 each; the policy cannot get below −2.5."""
    rows = {"policy/entropy_c": -5.0, "policy/target_entropy_c": -20.0}
    return temperature(part="c", growth=0.7, **(rows | more))


def test_a_target_below_every_entropy_is_out_of_reach():
    line = only_line(config(target_c_alpha=10), narrow())
    assert line.startswith("the target entropy is out of reach: policy/entropy_c stays 15 above it")
    assert line.endswith("· lower sac_config.target_c_alpha (10; usual: 1)")
    assert (
        watch(
            monitor(config(target_c_alpha=10)),
            narrow(**{"policy/entropy_c": lambda k: -5.0 - k / 2}),
        )
        == []
    )
    # Where actions do not matter the entropy stays near log 2 each, and α falls for ever: nothing is wrong.
    assert watch(monitor(config(target_c_alpha=10)), narrow(**{"policy/entropy_c": 1.3})) == []
    usual = {"policy/entropy_c": 1.3, "policy/target_entropy_c": -2.0}
    assert watch(monitor(config()), narrow(**usual)) == []


def saturated(**more):
    rows = {"policy/saturation": 0.99, "rollout/return_mean": lambda k: 100.0 if k < 1 else 90.0}
    return summaries(**(rows | more))


def test_actions_stuck_at_their_bounds_are_told():
    line = only_line(config(), saturated())
    assert "policy/saturation is 0.99" in line
    assert "no more than random actions did (100)" in line
    assert "sac_config.learning_rate" in line


@pytest.mark.parametrize(
    ("why", "rows"),
    [
        ("the bounds are the best actions", {"rollout/return_mean": lambda k: 100.0 + k}),
        ("only some actions are there", {"policy/saturation": 0.9}),
        ("not all of the time", {"policy/saturation": lambda k: 0.5 if k % 10 == 0 else 1.0}),
        ("it is not measured", {"policy/saturation": math.nan}),
        ("too early to say", {"every": 100}),
    ],
)
def test_other_saturations_are_left_alone(why, rows):
    assert watch(monitor(config()), saturated(**rows)) == [], why


def test_a_replay_ratio_that_is_not_kept_is_told():
    line = only_line(config(300, replay_ratio=2.0), summaries(**{"time/replay_ratio": 1.5}))
    assert "time/replay_ratio is 1.5 of 2" in line
    assert "raise replay_config.capacity (300) or lower sac_config.batch_size (256)" in line
    kept = summaries(**{"time/replay_ratio": lambda k: 1.5 if k < 4 else 2.0})
    assert watch(monitor(config(replay_ratio=2.0)), kept) == []
    fresh = config(use_replay_buffer=False, use_priority=False, replay_ratio=2.0)
    assert watch(monitor(fresh), summaries(**{"time/replay_ratio": 0.01})) == []


def test_a_learner_without_updates_is_starved():
    never = list(summaries(**{"loss/q": math.nan}))
    assert "not one update in the last 5,000 steps" in only_line(config(), never)
    assert watch(monitor(config()), never)[0][0] == 6000
    stopped = summaries(**{"loss/q": lambda k: min(k, 12) / 7})
    ((step, _),) = watch(monitor(config()), stopped)
    assert step == 18_000  # the loss of 13,000 is that of 18,000


@pytest.mark.parametrize(
    ("why", "sac", "rows"),
    [
        ("learning has not begun", {"start_step": 10**6}, {}),
        ("hardly any update is due", {"replay_ratio": 1e-3}, {}),
        (
            "a batch of new data takes long",
            {"use_replay_buffer": False, "use_priority": False},
            {"every": 300},
        ),
    ],
)
def test_other_pauses_are_left_alone(why, sac, rows):
    assert watch(monitor(config(**sac)), summaries(**{"loss/q": math.nan} | rows)) == [], why


def values(growth=1.5, **more):
    return summaries(**({"value/q_mean": lambda k: -(growth**k)} | more))


def test_critics_beyond_any_return_diverge():
    # Returns of at most 200 over 200 steps: 1 a step, 100 with γ = 0.99. So 200; told beyond 5 · 200.
    line = only_line(config(n_step=3), values())
    assert "value/q_mean is -1,478, and no more than 200 is possible" in line
    assert "sac_config.learning_rate (0.0003)" in line
    assert line.endswith("or sac_config.n_step (3)")
    assert "n_step" not in only_line(config(n_step=1), values())
    # With γ = 0.999 a reward of 1 a step is worth 1,000.
    assert "no more than 1,000 is possible" in only_line(config(gamma=0.999), values())
    # With γ = 1 nothing but an episode is known: 200 steps of 1.
    assert "no more than 200 is possible" in only_line(config(gamma=1.0), values())
    # Without discrete entropy in the targets no temperature makes up for it.
    unused = values(**{"policy/alpha_d": 1e4, "policy/entropy_d": 0.5})
    assert "no more than 200 is possible" in only_line(config(discrete_soft_target=False), unused)


@pytest.mark.parametrize(
    ("why", "rows"),
    [
        ("values grow to what is possible", {"value/q_mean": lambda k: 200 * (1 - 0.5**k)}),
        ("they are large and do not grow", {"value/q_mean": 5000.0}),
        ("the bonus is in them", {"growth": 1.5, "policy/alpha_d": 1e4, "policy/entropy_d": 0.5}),
        (
            "it is, in the unit of the rewards",
            {"policy/alpha_d": 1e2, "policy/entropy_d": 0.5, "value/return_scale": 100.0},
        ),
        ("nothing is known of returns", {"rollout/length": math.nan}),
        ("they swing", {"value/q_mean": lambda k: 1.5**k * (-1) ** k * (3 if k % 3 else 1)}),
    ],
)
def test_other_values_are_left_alone(why, rows):
    assert watch(monitor(config()), values(**rows)) == [], why


def test_a_recorded_critic_that_is_held_back_is_told_once():
    ((step, line),) = watch(monitor(config(clip_epsilon=0.2, tau=0.005)), recorded("pendulum_clipped"))
    assert step == 2500  # a value of −5 where −59 stands without the clip
    assert line == (
        "the clip holds the critics back: value/clipped is 0.995, so that values move by about 0.001 an "
        "update, tau times epsilon; TD errors are 6.01 · "
        "set sac_config.clip_epsilon (0.2) to -1, which turns it off"
    )


def clipped(**more):
    return summaries(**({"value/clipped": 0.9, "replay/priority_mean": 3.0} | more))


CLIP = {"clip_epsilon": 0.5, "tau": 0.02, "update_target_per_step": 2}


def test_a_critic_that_its_clip_holds_back_is_told():
    ((step, line),) = watch(monitor(config(**CLIP)), clipped())
    assert step == 3000 and "about 0.005 an update" in line and "clip_epsilon (0.5) to -1" in line


@pytest.mark.parametrize(
    ("why", "sac", "rows"),
    [
        ("there is no clip", {"clip_epsilon": -1.0}, {}),
        ("it takes few gradients", CLIP, {"value/clipped": 0.7}),
        ("not all of the time", CLIP, {"value/clipped": lambda k: 0.2 if k % 3 == 0 else 1.0}),
        ("values are near", CLIP, {"replay/priority_mean": 2.0}),
        ("values come near", CLIP, {"replay/priority_mean": lambda k: 100 * 0.85**k}),
        ("too early to say", CLIP, {"every": 30}),
        ("nothing was learned yet", CLIP, {"value/clipped": math.nan}),
    ],
)
def test_other_clips_are_left_alone(why, sac, rows):
    assert watch(monitor(config(**sac)), clipped(**rows)) == [], why


def like(**more):
    return summaries(**({"replay/priority_saturated": 0.95, "replay/priority_mean": 3.0} | more))


def test_priorities_that_are_all_the_largest_are_told():
    ((step, line),) = watch(monitor(config()), like())
    assert step == 6000
    assert line == (
        "priorities are saturated: replay/priority_saturated is 0.95, so that rows are drawn nearly uniformly"
        "; TD errors are 3 · raise replay_config.td_error_max (1), or set sac_config.reward_scaling to true"
    )
    assert only_line(config(reward_scaling=True), like()).endswith("· raise replay_config.td_error_max (1)")


@pytest.mark.parametrize(
    ("why", "sac", "rows"),
    [
        ("there are no priorities", {"use_priority": False}, {}),
        ("everything is used once", {"use_priority": False, "use_replay_buffer": False}, {}),
        ("some are not", {}, {"replay/priority_saturated": 0.85}),
        ("not all of the time", {}, {"replay/priority_saturated": lambda k: 0.5 if k % 6 == 0 else 1.0}),
        ("they are hardly above", {}, {"replay/priority_mean": 1.9}),
        ("it is not measured", {}, {"replay/priority_saturated": math.nan}),
    ],
)
def test_other_priorities_are_left_alone(why, sac, rows):
    assert watch(monitor(config(**sac)), like(**rows)) == [], why


def test_recorded_values_of_the_bonus_are_told_once():
    grid = config(clip_epsilon=-1.0, init_log_alpha=-2.3, batch_size=64)
    ((step, line),) = watch(monitor(grid), recorded("mini_grid"))
    assert step == 6000  # the return fell to 0 at 3,500
    assert line == (
        "values are those of the entropy bonus: value/q_mean is 1.77, and rewards allow no more than 1.07; "
        "episodes return 0, no more than random actions did (0.197), since the bonus pays for never finishing"
        " · lower sac_config.init_log_alpha (-2.3), or set sac_config.discrete_soft_target to false"
    )


def never_finishing(part="d", **more):
    """Returns of at most 200, as at random; a bonus of 0.9 · 5 a step, 450 where it never ends."""
    rows = {
        f"policy/alpha_{part}": 0.9,
        f"policy/entropy_{part}": 5.0,
        "value/q_mean": lambda k: 400 * (1 - 0.5**k),
        "rollout/return_mean": lambda k: 100.0 if k < 1 else 90.0,
    }
    return summaries(**(rows | more))


def test_values_beyond_what_rewards_allow_are_told():
    ((step, line),) = watch(monitor(config(init_log_alpha=-1.0)), never_finishing())
    assert step == 7000  # 300 of 3,000 is the first above 250
    assert "value/q_mean is 393.8, and rewards allow no more than 200" in line
    assert line.endswith(
        "· lower sac_config.init_log_alpha (-1), or set sac_config.discrete_soft_target to false"
    )
    line = only_line(config(init_log_alpha=-1.0), never_finishing("c"))
    assert line.endswith("· lower sac_config.init_log_alpha (-1)")
    scaled = {"policy/alpha_d": 0.09, "value/return_scale": 10.0}
    assert only_line(config(), never_finishing(**scaled)) == only_line(config(), never_finishing())
    some = lambda k: math.nan if k % 2 else 90.0  # noqa: E731 - episodes longer than a summary
    assert watch(monitor(config()), never_finishing(**{"rollout/return_mean": some}))


@pytest.mark.parametrize(
    ("why", "rows"),
    [
        ("rewards allow as much", {"rollout/return_max": 320.0}),
        ("returns are better than at random", {"rollout/return_mean": lambda k: 100.0 + k}),
        ("the bonus is too small for that", {"policy/alpha_d": 0.3}),
        ("entropy costs", {"policy/entropy_d": -5.0}),
        ("there is no entropy", {"policy/entropy_d": math.nan}),
        ("not all of the time", {"value/q_mean": lambda k: 100.0 if k % 5 == 0 else 400.0}),
        ("nothing is known of returns", {"rollout/length": math.nan}),
        ("hardly an episode ends", {"rollout/return_mean": lambda k: math.nan if k % 3 else 90.0}),
    ],
)
def test_other_bonuses_are_left_alone(why, rows):
    assert watch(monitor(config()), never_finishing(**rows)) == [], why


def test_discrete_entropy_that_is_in_no_target_is_in_no_value():
    assert watch(monitor(config(discrete_soft_target=False)), never_finishing()) == []
    line = only_line(config(discrete_soft_target=False), never_finishing("c"))
    assert line.endswith("· lower sac_config.init_log_alpha (-2.3)")


@pytest.mark.parametrize("cut", [3, 16, 17, 20])
def test_a_resumed_run_goes_on_and_repeats_nothing(cut):
    settings = config(**CART_POLE, target_d_alpha=0.9)
    rows = list(recorded("cart_pole_0.9"))
    before, after = monitor(settings), monitor(settings)
    told = watch(before, rows[:cut])
    after.load_state(json.loads(json.dumps(before.state(), allow_nan=False)))
    assert told + watch(after, rows[cut:]) == watch(monitor(settings), rows)
    assert before.state() != after.state()


def test_two_troubles_are_two_lines():
    both = {"time/replay_ratio": 0.1, "loss/q": math.nan}
    assert len(watch(monitor(config()), summaries(**both))) == 2


def test_numbers_that_are_not_finite_count_as_missing():
    assert watch(monitor(config()), summaries(**dict.fromkeys(WATCHED, math.nan), every=1)) == []
    health = monitor(config())
    health.update(1, dict.fromkeys(WATCHED, math.inf))
    json.dumps(health.state(), allow_nan=False)


def test_the_history_by_hand():
    history = History(random_until=100)
    for step, mean, low, high, length in ((50, -2, -30, 1, 10), (100, -4, -5, -3, 2), (150, 7, 7, 7, 7)):
        metrics = ("rollout/return_mean", "rollout/return_min", "rollout/return_max", "rollout/length")
        history.add(Summary(step, dict(zip(metrics, (mean, low, high, length), strict=True))))
    history.add(Summary(200, {"loss/q": 1.0}))
    assert (history.largest_return, history.largest_reward, history.longest_episode) == (30, 3, 10)
    assert history.random_returns == [-2, -4]
    assert history.last("loss/q", 1) == [1]
    assert history.last("loss/q", 2) == []
    assert (history.span(1), history.span(3)) == (50, 150)
    assert (history.horizon(0.5), history.horizon(0.99), history.horizon(1.0)) == (2, 10, 10)
    for step in range(100):
        history.add(Summary(300 + step, {}))
    assert len(history.rows) == WINDOW


HISTOGRAMS = {"value_head": "categorical", "reward_scaling": True}


def test_targets_beyond_the_range_of_histograms_are_told():
    ((step, line),) = watch(monitor(config(**HISTOGRAMS)), summaries(**{"value/clamped": 0.02}))
    assert step == 5000
    assert line == (
        "targets do not fit the histograms of the critics: value/clamped is 0.02, and counts as the end of "
        "the range · begin anew with sac_config.categorical_range above 5"
    )
    for rows in ({"value/clamped": 0.009}, {"value/clamped": lambda k: 0.02 * (k % 5 > 0)}):
        assert watch(monitor(config(**HISTOGRAMS)), summaries(**rows)) == []
    assert watch(monitor(config()), summaries(**{"value/clamped": 0.5})) == []


@pytest.mark.parametrize("name", ["norm/shift", "norm/shift_policy"])
def test_statistics_that_run_away_are_told(name):
    ((step, line),) = watch(monitor(config()), summaries(**{name: lambda k: 3.0 + k}))
    assert step == 6000
    assert line == (
        f"the statistics of a batch norm run away: {name} is 8 standard deviations · lower "
        "sac_config.learning_rate (0.0003), or take norm: layer"
    )
    for rows in ({name: 2.9}, {name: lambda k: 2.0 if k % 6 == 0 else 9.0}):
        assert watch(monitor(config()), summaries(**rows)) == []


def test_what_is_watched_is_logged():
    assert set(WATCHED) <= set(METRICS)


def test_every_line_names_a_key():
    from algorithm.config.schema import fields

    keys = {".".join(path) for path, _ in fields()}
    told = [
        *watch(monitor(config()), temperature()),
        *watch(monitor(config()), saturated()),
        *watch(monitor(config()), values()),
        *watch(monitor(config()), summaries(**{"time/replay_ratio": 0.1, "loss/q": math.nan})),
        *watch(monitor(config(**CLIP)), clipped()),
        *watch(monitor(config()), like()),
        *watch(monitor(config()), never_finishing()),
    ]
    assert len(told) == 8
    told += watch(monitor(config(**HISTOGRAMS)), summaries(**{"value/clamped": 0.02}))
    told += watch(monitor(config()), summaries(**{"norm/shift": 3.5}))
    assert len(told) == 10
    for _, line in told:
        what, fix = line.split(" · ")
        assert "\n" not in what
        assert any(key in fix for key in keys), fix


def test_rules_fit_the_configuration():
    plain = {"diverging", "values_of_entropy", "saturated", "ratio", "starved", "statistics"}
    assert set(make_rules(config(use_auto_alpha=False, use_priority=False, clip_epsilon=0.0))) == plain
    assert set(make_rules(config(use_auto_alpha=False, clip_epsilon=0.2))) == plain | {
        "held_back",
        "priorities",
    }
    assert "clamped" in make_rules(config(**HISTOGRAMS))
