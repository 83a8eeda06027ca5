"""A small training of two networks with eight units, and the exit code of a command."""

from main import main

KEYS = {
    "sac_config.save_model_per_step": 60,
    "sac_config.start_step": 40,
    "sac_config.batch_size": 16,
    "nn_config.q.dense_n": 8,
    "nn_config.policy.dense_n": 8,
    "eval_config.per_step": 80,
    "eval_config.episodes": 2,
}
SHORT = {"overrides": KEYS, "max_step": 120, "seed": 1, "device": "cpu", "quiet": True}


def exit_code(words: list[str]) -> int:
    """Return the exit code of a command; argparse raises its own."""
    try:
        return main(words)
    except SystemExit as end:
        return int(end.code or 0)
