"""Under a memory all images of a window move alike, however many passes it is encoded in."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn.layers.augment import RandomShift
from tests.lib.batches import random_batch, small_sac

SPEC = AgentSpec(ObsSpec(("image",), ((15, 15, 1),), ("uint8",)), ActionSpec(continuous=1))
RAMP = (15 * torch.arange(15)[:, None] + torch.arange(15)).to(torch.uint8)[..., None]
"""An image whose middle pixel tells by how much it has moved."""

SIZE = 12


class Seen:
    """A learner whose random shift is watched: how its images have moved, [SIZE, T] for each pass."""

    def __init__(self, memory: str | None) -> None:
        self.sac = small_sac(spec=SPEC, seq_encoder=memory, n_step=2, rep={"random_shift": 2})
        self.config = self.sac.config
        self.passes: list[torch.Tensor] = []
        for module in self.sac.model.rep.modules():
            if isinstance(module, RandomShift):
                module.register_forward_hook(self._look)

    def _look(self, module: RandomShift, inputs: tuple, moved: torch.Tensor) -> None:
        self.passes.append(moved[:, 7, 7, 0].view(SIZE, -1))

    def encode(self) -> torch.Tensor:
        """Where the middle of each token's image came from [SIZE, W+1], of one look at a batch."""
        self.passes.clear()
        window = self.config.burn_in_step + self.config.learn_step + 1
        batch = random_batch(SIZE, window, spec=SPEC)
        obs = {"image": RAMP.expand(SIZE, window + 1, 15, 15, 1)}
        carry = torch.zeros(SIZE, *self.sac.model.rep.stored_carry_shape)
        with self.sac.model.training_mode():
            assert self.sac.encode(replace(batch, obs=obs, carry=carry)).state.shape[1] == window + 1
        return torch.cat(self.passes, 1)


@pytest.mark.parametrize(("memory", "passes"), [("RNN", 3), ("ATTN", 1)])
def test_all_images_of_a_window_move_alike_and_windows_on_their_own(memory, passes):
    seen = Seen(memory)
    moved = seen.encode()
    assert len(seen.passes) == passes and moved.shape == (SIZE, 8)
    assert torch.equal(moved, moved[:, :1].expand(-1, 8)), "burn-in, learned steps and what follows"
    assert len(set(moved[:, 0].tolist())) > 4
    assert not torch.equal(seen.encode()[:, 0], moved[:, 0]), "another look"


def test_without_memory_each_image_moves_on_its_own():
    moved = Seen(None).encode()
    assert moved.shape == (SIZE, 3) and not (moved == moved[:, :1]).all(1).any()


def test_after_a_window_images_move_on_their_own_again():
    seen = Seen("RNN")
    seen.encode()
    (shift,) = (module for module in seen.sac.model.rep.modules() if isinstance(module, RandomShift))
    moved = shift.train()(RAMP.expand(60, 15, 15, 1))[:, 7, 7, 0]
    assert len(set(moved.tolist())) > 12
