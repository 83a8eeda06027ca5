"""A run whose actions have fixed times."""

import asac
from tests.lib.clock import Time

KEYS = {
    "base_config.preset": "plain",
    "base_config.wrappers": [{"TimeLimit": {"max_episode_steps": 7}}],
    "base_config.control_hz": 10.0,
    "sac_config.save_model_per_step": 10,
    "sac_config.write_summary_per_step": 10,
    "sac_config.start_step": 8,
    "sac_config.batch_size": 4,
    "nn_config.q.dense_n": 8,
    "nn_config.policy.dense_n": 8,
    "eval_config.per_step": 10,
    "eval_config.episodes": 1,
}


class Slow(asac.Callback):
    """Takes 3 s of the clock at each checkpoint, and notes where it came; an evaluation takes 0.6 s."""

    def __init__(self, time: Time) -> None:
        self.time, self.saved, self.evaluated = time, [], []

    def on_checkpoint(self, training):
        self.saved.append(training.step)
        self.time.spend(3.0)

    def on_evaluation(self, training, evaluation):
        self.evaluated.append(training.step)


def test_what_takes_long_waits_for_the_end_of_an_episode(tmp_path, monkeypatch):
    """Episodes have 7 steps, and something is due every 10; updates go on in time after it."""
    monkeypatch.chdir(tmp_path)
    time = Time()
    monkeypatch.setattr("algorithm.env.pool.pace.Pace", time.pace)
    run = asac.train(
        "tests.lib.toys:Endless-v0",
        callbacks=[slow := Slow(time)],
        overrides=KEYS,
        max_step=42,
        seed=1,
        device="cpu",
        quiet=True,
    )
    assert slow.saved == slow.evaluated == [14, 21, 35, 42]
    assert set(run.metrics["step"]) == {14, 21, 35, 42}
    assert set(run.metrics["time/overrun"]) == {0.0}
