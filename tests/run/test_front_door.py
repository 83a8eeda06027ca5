"""A file of the user's own as an environment."""

import json

import pytest

from main import main
from tests.lib import own_env

SMALL = [
    *("base_config.max_step=70", "nn_config.q={dense_n: 8}", "nn_config.policy={dense_n: 8}"),
    *("replay_config.capacity=1000", "sac_config.start_step=50", "sac_config.batch_size=16"),
    *("sac_config.save_model_per_step=50", "eval_config={per_step: 60, episodes: 1}"),
]
OVERRIDES = [word for text in SMALL for word in ("-o", text)]


@pytest.fixture
def folder(cwd):
    with own_env.fresh_imports():
        yield cwd


def test_a_run_whose_environment_changed_is_not_called_exact(folder, capsys):
    own_env.write(folder)
    call = ["own_env.py:Own", "--device=cpu", *OVERRIDES]
    assert main([*call, "-n", "a"]) == 0
    source = folder / "own_env.py"
    source.write_text(source.read_text() + "# other text\n")
    capsys.readouterr()
    assert main(["own_env.py:Own", "--resume", "-o", "base_config.max_step=75"]) == 0
    out = capsys.readouterr()
    assert "not bit-exact: the environment's file own_env.py has been changed since" in out.out + out.err
    manifest = json.loads((folder / "models" / "own_env" / "Own" / "a" / "manifest.json").read_text())
    assert manifest["env_file"]["path"] == str(source)
    assert manifest["device"] == manifest["resumed"][0]["device"] == "cpu"
