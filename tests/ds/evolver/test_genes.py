"""What may evolve, which values are valid, and the words that give them to a member."""

from pathlib import Path

import pytest

from algorithm.config import ConfigError, LoadedConfig, load_config
from algorithm.config.random_params import Distribution
from ds.evolver.genes import Genes

TASK = """\
default:
  base_config: {env_type: GYM, env_name: Pendulum-v1}
"""


def loaded(folder: Path, text: str, *overrides: str) -> LoadedConfig:
    """A task with more blocks; ``overrides`` for those that it has already."""
    (folder / "config.yaml").write_text(TASK + text)
    return load_config(str(folder), overrides=overrides, seed=1)


def sac(params: str, more: str = "") -> str:
    return f"  sac_config: {{random_params: {params}{more}}}\n"


EVERY_FORM = sac(
    "{learning_rate: {std: 1e-4, truncated: [1e-4, 1e-3]}, tau: {truncated: [0.1, 0.2]}, "
    "gamma: {std: 0.001}, n_step: {in: [1, 3, 5]}}"
)


def test_every_form_is_a_gene_and_what_was_drawn_is_valid(tmp_path):
    config = loaded(
        tmp_path,
        EVERY_FORM + "  ma_config: {A.b: {replay_config: {random_params: {td_error_max: {in: [1]}}}}}\n",
    )
    genes = Genes(config)
    assert list(genes.distributions) == list(genes.configured) == list(config.drawn)
    assert "ma_config.A.b.replay_config.td_error_max" in genes.distributions and len(genes.distributions) == 9
    assert genes.distributions["sac_config.n_step"] == Distribution("choice", choices=(1, 3, 5))
    assert genes.accepts(genes.configured)


@pytest.mark.parametrize(
    ("text", "key", "why"),
    [
        (sac("{ensemble_q_num: {in: [2, 3]}}"), "sac_config.ensemble_q_num", "the networks would differ"),
        (sac("{init_log_alpha: {std: 1}}"), "sac_config.init_log_alpha", "the temperature in the checkpoint"),
        (
            "  replay_config: {random_params: {capacity: {in: [1000, 2000]}}}\n",
            "replay_config.capacity",
            "would not all fit",
        ),
        (
            sac("{burn_in_step: {truncated: [4, 5]}}", ", seq_encoder: ATTN"),
            "sac_config.burn_in_step",
            "attention was trained with",
        ),
        (
            "base_config.random_params={name: {in: [a, b]}}",
            "base_config.name",
            "the population names",
        ),
        (
            "  ma_config: {A: {sac_config: {random_params: {use_priority: {in: [true, false]}}}}}\n",
            "ma_config.A.sac_config.use_priority",
            "different values per row",
        ),
        (
            "base_config.random_params={evolver_remove_worst: {in: [4]}}",
            "base_config.evolver_remove_worst",
            "belongs to the population",
        ),
    ],
)
def test_what_a_resume_refuses_is_no_gene(tmp_path, text, key, why):
    config = loaded(tmp_path, text) if text.startswith(" ") else loaded(tmp_path, "", text)
    with pytest.raises(ConfigError) as caught:
        Genes(config)
    (problem,) = caught.value.problems
    assert problem.what == f"`{key}` cannot evolve" and why in problem.why
    assert problem.where == "random_params of config.yaml, section default"


def test_values_are_judged_together(tmp_path):
    text = sac("{learning_rate: {std: 1e-4}, batch_size: {std: 1}}")
    genes = Genes(loaded(tmp_path, text, "base_config.random_params={workers: {in: [0]}, n_envs: {in: [8]}}"))
    good = {"sac_config.learning_rate": 1e-3, "sac_config.batch_size": 64}
    good |= {"base_config.workers": 8, "base_config.n_envs": 8}
    assert genes.accepts(good)
    for path, value in (
        ("sac_config.learning_rate", -1e-3),
        ("sac_config.batch_size", 0),
        ("sac_config.batch_size", 2.5),
        ("base_config.n_envs", 4),
    ):
        assert not genes.accepts({**good, path: value}), path


def test_values_are_judged_with_each_behaviour_and_its_own(tmp_path):
    text = "  ma_config: {A: {sac_config: {action_noise: [0, 0.5], v_rho: 2, v_c: 2}}, A.b: null}\n"
    drawn = "base_config.random_params={noise_increasing_rate: {in: [0.0]}}"
    genes = Genes(loaded(tmp_path, sac("{v_rho: {in: [1]}}", ", v_c: 0.5") + text, drawn, OFF))
    assert genes.accepts(genes.configured) and genes.accepts({"sac_config.v_rho": 0.75})
    assert not genes.accepts({"base_config.noise_increasing_rate": 0.5}), "A's action_noise is another way"
    for path in genes.distributions:
        assert not genes.accepts({**genes.configured, path: "x"}), path


OFF = "ma_config.A.sac_config.random_params=null"
NAMES = ("Goalie", "my.agent", " a ", "it's: {odd}")


@pytest.mark.parametrize("name", NAMES)
def test_a_member_has_exactly_its_genes_and_draws_nothing(tmp_path, name):
    text = (
        EVERY_FORM
        + f"  ma_config: {{{name!r}: {{replay_config: {{random_params: {{td_error_max: {{in: [1]}}}}}}}}}}\n"
    )
    genes = Genes(loaded(tmp_path, text))
    wanted = {
        path: {"n_step": 7, "td_error_max": 0.25}.get(path.rpartition(".")[2], 0.1 + 1e-17 + i / 77)
        for i, path in enumerate(genes.distributions)
    }
    member = load_config(str(tmp_path), overrides=genes.overrides(wanted), seed=9)
    assert member.drawn == {} and member.behaviours.keys() == {name}
    for path, value in wanted.items():
        *behaviour, block, key = path.split(".")
        config = member.behaviours[name] if behaviour else member.config
        assert getattr(getattr(config, block), key) == value, path
