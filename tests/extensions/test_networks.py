"""Networks of extensions that a task brings: they are taken, and a wrong one is named."""

import pytest

from algorithm.core.errors import ModelError
from algorithm.keys.signals import GailSignal, RewardSignals
from tests.lib.batches import small_sac, small_windows

GAIL = {"signals": RewardSignals(gail=GailSignal(strength=1.0))}
ATC, BYOL = {"siamese": "ATC"}, {"siamese": "BYOL"}
FORWARD, INVERSE = {"curiosity": "FORWARD"}, {"curiosity": "INVERSE"}
PREDICTION, RND = {"use_prediction": True}, {"use_rnd": True}
WRONG = {
    "ModelForwardDynamic": (
        FORWARD,
        "state, action",
        "torch.cat([state, action], -1)",
        "(2, 3, 3), got (2, 3, 5)",
    ),
    "ModelInverseDynamic": (INVERSE, "state, next_state", "state", "(2, 3, 2), got (2, 3, 3)"),
    "ModelRND": (RND, "state, action", "state.sum()", "(2, 3, F), got ()"),
    "ModelDiscriminator": (GAIL, "vector, images", "vector[:, :1]", "(3,), got (3, 1)"),
    "ModelRepPrediction": (ATC, "x", "x[:, :1]", "(2, 3), got (2, 1)"),
    "ModelRepProjection": (BYOL, "state", "state[:, 0]", "(2, P), got (2,)"),
    "ModelTransition": (
        PREDICTION,
        "state, action, obs",
        "(state, state[..., :1])",
        "(2, 3, 3), got (2, 3, 1)",
    ),
    "ModelReward": (PREDICTION, "state, action", "action[..., :1]", "(2, 3), got (2, 3, 1)"),
    "ModelObservation": (PREDICTION, "state", "{'image': state}", "obs, got image"),
}
"""Class -> the extension that has it, arguments of ``forward``, a wrong result, and what is said of it."""


def written(folder, name, arguments, result):
    file = folder / "nn.py"
    file.write_text(
        f"import torch\nclass {name}(torch.nn.Module):\n"
        "    def __init__(self, *args, **sizes):\n        super().__init__()\n"
        f"        self.layer = torch.nn.Linear(args[1], 5)\n"
        f"    def forward(self, {arguments}):\n        return {result}\n"
    )
    return file


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("fails", [False, True])
def test_a_network_that_returns_a_wrong_shape_or_fails_is_named_with_its_line(tmp_path, name, fails):
    options, arguments, result, said = WRONG[name]
    file = written(tmp_path, name, arguments, "nothing" if fails else result)
    with pytest.raises(ModelError) as raised:
        small_sac(file=file, **options)
    text = str(raised.value)
    assert f"{name}.forward" in text and "nn.py" in text
    assert ("nn.py:7" in text and "NameError" in text) if fails else f"expected {said}" in text


def test_a_task_s_own_network_is_taken_and_the_next_one_has_its_width(tmp_path):
    sac = small_sac(file=written(tmp_path, "ModelRepProjection", "state", "self.layer(state)"), **BYOL)
    projection, prediction = sac.extensions[0].joint
    assert projection.layer.out_features == 5
    assert next(prediction.parameters()).shape[1] == 5
    assert sac.update(small_windows(sac)).metrics["loss/siamese"].isfinite()
