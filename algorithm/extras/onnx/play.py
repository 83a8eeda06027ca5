"""An exported policy without torch: python play.py FILE.onnx ENVIRONMENT [EPISODES [SEED]]."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


class ExportedPolicy:
    """Policy of N agents. Set ``memory`` to None when all episodes begin, ``memory[i]`` to 0 for one."""

    def __init__(self, file: str, deterministic: bool = True) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])
        self.card = json.loads(Path(file).with_suffix(".json").read_text("utf-8"))
        self.prefix, self.memory = "deterministic_" if deterministic else "", None

    def act(self, obs: dict[str, Any], mask: Any = None) -> list[Any]:  # noqa: ANN401
        """Return choices [N, branches] and u [N, A] in ±1; obs: name -> [N, ...], mask: [N, choices]."""
        feeds, n = {}, len(next(iter(obs.values())))
        for port in self.card["observations"]:
            x = np.asarray(obs[port["observation"]], port["type"]).transpose(0, *port["axes"])
            x = x if port["divisor"] == 1 else x / np.float32(port["divisor"])
            feeds[port["name"]] = x.reshape(n, *port["shape"])
        if choices := sum(self.card["branches"]):
            allowed = np.ones((n, choices)) if mask is None else np.reshape(mask, (n, choices))
            feeds["action_masks"] = allowed.astype(np.float32)
        if size := self.card["memory"]:
            feeds["recurrent_in"] = np.zeros((n, 1, size), np.float32) if self.memory is None else self.memory
        names = [port.name for port in self.session.get_outputs()]
        outputs = dict(zip(names, self.session.run(names, feeds), strict=True))
        self.memory = outputs.get("recurrent_out")
        return [outputs.get(f"{self.prefix}{kind}_actions") for kind in ("discrete", "continuous")]


def main(file: str, name: str, episodes: str = "1", seed: str = "0") -> None:
    """Play episodes of a Gymnasium environment with Box, Discrete or MultiDiscrete actions and flat masks.

    Observations are an array or a Dict of arrays; choices among them count from 0.
    """
    import gymnasium

    env, policy = gymnasium.make(name), ExportedPolicy(file)
    space: Any = env.action_space
    for number in range(int(episodes)):
        (obs, info), total, over = env.reset(seed=int(seed) + number), 0.0, False
        policy.memory = None
        while not over:
            seen = obs if isinstance(obs, dict) else {"obs": obs}
            batch = {key: np.asarray(value)[None] for key, value in seen.items()}
            choices, u = policy.act(batch, batch.get("action_mask", info.get("action_mask")))
            if choices is None:
                half = space.high / 2 - space.low / 2
                action = space.high / 2 + space.low / 2 + half * u[0].reshape(space.shape)
            else:
                action = (choices[0] if hasattr(space, "nvec") else choices[0, 0]) + space.start
            obs, reward, terminated, truncated, info = env.step(action)
            total, over = total + float(reward), terminated or truncated
        print(f"episode {number + 1}: return {total:.6g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
