"""A run of three evaluations in the place of ``main.py``; their values follow from its flags.

Files in the folder of the study steer it: ``kill_NAME`` kills the run once, ``fail_NAME`` holds exit code
and error of a run that fails, ``wait_NAME`` makes it wait after its first evaluation.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path

words = sys.argv[2:]
flags = {word: after for word, after in pairwise([*words, ""]) if word.startswith("-")}
drawn = {key: value for word in words if "=" in word for key, value in [word.split("=")]}
run = Path(flags.get("--directory", "models"), sys.argv[1], flags["-n"])
study, name = run.parent, run.name
run.mkdir(exist_ok=True)
(run / "checkpoints" / "step_000000000").mkdir(parents=True, exist_ok=True)
if "--resume" not in words:
    kept = {"x": float(drawn.get("sac_config.learning_rate", 0.5)), "seed": int(flags["--seed"])}
    (run / "config.yaml").write_text(json.dumps(kept))
given = json.loads((run / "config.yaml").read_text())
with (study / "begun.txt").open("a") as begun:
    begun.write(f"{name} {'resumed' if '--resume' in words else 'new'}\n")
if (study / f"fail_{name}").exists():
    code, error = (study / f"fail_{name}").read_text().split(" ", 1)
    print(f"error: {error}")
    sys.exit(int(code))
rows = run / "metrics.jsonl"
rows.write_text("")
for index in (1, 2, 3):
    value = -((given["x"] - 0.3) ** 2) * index - 0.001 * (given["seed"] % 7)
    row = {
        "step": 100 * index,
        "eval/return_mean": value,
        "time/cpu_seconds": float(index),
        "rollout/return_mean": None,
    }
    with rows.open("a") as file:
        file.write(json.dumps(row) + "\n")
    if index == 1 and (study / f"kill_{name}").exists():
        (study / f"kill_{name}").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    while index == 1 and (study / f"wait_{name}").exists():
        time.sleep(0.02)
(run / "result.json").write_text(json.dumps({"steps": 300, "ended": {"by": "max_step"}}))
