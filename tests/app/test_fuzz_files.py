"""Any file of a run may be anything: what reads it ends with a message and a documented exit code."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from algorithm.store import provenance
from tests.app.damage import fresh, hurt
from tests.lib.sessions import TASK, run

SECONDS = float(os.environ.get("FUZZ_SECONDS", "60"))
"""Of the long test."""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Iterator[Path]:
    """A folder to start from, with a run in ``original/``, which was resumed once."""
    here, before = tmp_path_factory.mktemp("fuzz"), Path.cwd()
    os.chdir(here)
    (here / "task").mkdir()
    (here / "task/config.yaml").write_text(TASK)
    short = ("-o", "eval_config={per_step: -1, episodes: 1}", "-o", "sac_config.save_model_per_step=50")
    assert run("--seed=1", "-n", "a", "--quiet", "--max_step=60", *short) == 0
    assert run("-n", "a", "--quiet", "--resume", "--max_step=110") == 0
    (here / "models/task/a").rename(here / "original")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "git_state", lambda: None)  # a process of its own
        yield here
    os.chdir(before)


COMMANDS = (
    ("-n", "a", "--resume", "--max_step=120"),
    ("-n", "a", "--resume", "--max_step=120", "--ckpt=best"),
    ("-n", "a", "--eval=1"),
    ("-n", "a", "--eval=1", "--ckpt=best"),
    ("-n", "a", "--run", "--max_iter=1", "--ckpt=latest"),
    ("--report", "a"),
    ("--report", "*"),
    ("-n", "nope", "--eval=1"),
    ("-n", "a", "--max_step=10"),
)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.fault("F42")
def test_whatever_a_file_is_commands_end_with_a_documented_code(made, capsys):
    """For ``FUZZ_SECONDS``; ``FUZZ_SEED`` repeats one."""
    until, count = time.monotonic() + SECONDS, 0
    begun = int(os.environ.get("FUZZ_SEED", random.SystemRandom().randrange(10**9)))
    while time.monotonic() < until:
        seed = begun + count
        rng, folder = random.Random(seed), made / "models/task/a"
        fresh(made / "original", folder)
        done = [hurt(folder, rng) for _ in range(rng.choice([1, 1, 2]))]
        flags = rng.choice(COMMANDS)
        capsys.readouterr()
        print(f"FUZZ_SEED={seed} {done} {flags}")  # shown if it hangs
        code = run("--quiet", *flags)
        said = capsys.readouterr()
        assert code in (0, 2, 4, 5, 6), f"FUZZ_SEED={seed} {done} {flags}: {code}\n{said.err}"
        assert code == 0 or "error:" in said.err
        count += 1
    print(f"{count} commands")
