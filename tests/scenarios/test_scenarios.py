"""A run from the command line, what happens to its process, and what has to come of it."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import psutil
import pytest

from tests.lib.agreement import what_must_agree
from tests.lib.processes import LIMIT, Program
from tests.lib.sessions import TASK, result, run, trained
from tests.scenarios.struck import PLAN

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = """\
struck: # steps 1 to 260 are those of the training, and what follows is its evaluation
  base_config: {env_name: "tests.scenarios.struck:Struck-v0", env_restarts: 0}
  eval_config: {per_step: -1, episodes: 1}
  sac_config: {save_model_per_step: 100}
slow: # a step takes 20 ms
  base_config:
    {env_name: "tests.lib.toys_processes:Slow-v0", max_step: 60, max_step_each_iter: 10, env_timeout: 1}
  eval_config: {per_step: -1, episodes: 1}
  sac_config: {start_step: 20}
"""
STRUCK, SLOW = ("-c", "struck"), ("-c", "slow")
ENDLESS = ("-o", "base_config.max_step=-1")
TALKATIVE = (*ENDLESS, "-o", "eval_config.per_step=20", "-o", "base_config.max_step_each_iter=20")
# A checkpoint that cannot be written ends a run.
SELDOM_SAVED = ("-o", "sac_config.save_model_per_step=1000000", "-o", "checkpoint_config.best=false")
FILM = Path("models/task/a/videos/step_000000260_episode_1.mp4")
LOG = Path("models/task/a/train.log")
PIPE = "pipe"


# ---- what happens from outside


def nothing(program: Program) -> None:
    """The process is left alone."""


def is_hanging(program: Program) -> None:
    """Nobody else trains the run meanwhile, and the second Ctrl-C ends what the first cannot."""
    program.until(Path("hangs").exists)
    other = Program(program.folder, "-n", "a", "--resume", output="other.txt")
    assert other.end() == 2 and f"kill {program.pid}" in other.said
    program.send(signal.SIGINT)
    time.sleep(0.3)
    assert program.is_alive
    program.send(signal.SIGINT)


def gets_ctrl_c_with_its_workers(program: Program) -> None:
    """The workers get it as well, and are still needed. No process stays."""
    program.until(lambda: list(Path("models/task/a/checkpoints").glob("*/manifest.json")))
    children = program.children()
    assert len(children) >= 2
    program.send(signal.SIGINT, group=True)
    program.end()
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]


def gets_ctrl_c_while_filming(program: Program) -> None:
    """As if ffmpeg were in the foreground, too."""
    program.until(FILM.with_name(f".{FILM.name}.part").exists)
    program.send(signal.SIGINT, group=True)
    program.end()
    assert int(imageio_ffmpeg.count_frames_and_secs(str(FILM))[0]) > 0
    assert list(FILM.parent.iterdir()) == [FILM]


def has_finished_one_episode(program: Program) -> None:
    program.end()
    played = json.loads(Path("models/task/a/evaluation.json").read_text())
    assert played["behaviours"]["default"]["lengths"] == [25]
    with np.load("seen.npz", allow_pickle=False) as file:
        assert file["length"].tolist() == [25]


def stands_still(program: Program) -> None:
    """It and its workers, for longer than a step may take; nearly always in a step."""
    program.until(lambda: LOG.exists() and "step=" in LOG.read_text())
    everybody = [psutil.Process(program.pid), *program.children()]
    for one in everybody:
        one.suspend()
    time.sleep(3.0)
    for one in reversed(everybody):
        one.resume()


def _limit_its_files(program: Program, size: int) -> None:
    resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _cpu_seconds(program: Program) -> float:
    return psutil.Process(program.pid).cpu_times().user


def cannot_write_its_output_for_a_while(program: Program) -> None:
    """Nor its log, which says afterwards what was missed."""
    program.until(lambda: "eval step=20 " in program.said)
    _limit_its_files(program, 64)
    program.until(lambda: str(Path(f"/proc/{program.pid}/fd/1").readlink()) == os.devnull)
    worked = _cpu_seconds(program) + 0.3  # a line goes to the log after the output: leave it time for several
    program.until(lambda: _cpu_seconds(program) > worked)
    _limit_its_files(program, resource.RLIM_INFINITY)
    program.until(lambda: "lines that could not be written here" in LOG.read_text())
    program.send(signal.SIGTERM)


def loses_its_reader(program: Program) -> None:
    with Path(PIPE).open() as reader:
        reader.readline()
    program.end()
    assert "the reader of the output has exited" in LOG.read_text()


def waits_for_its_reader(program: Program) -> None:
    """The pipe is filled from outside, so that it soon hangs in a print; then the signal comes."""
    pipe = os.open(PIPE, os.O_RDWR | os.O_NONBLOCK)
    program.until(LOG.exists)
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        with contextlib.suppress(BlockingIOError):
            os.write(pipe, b" " * 4096)
        time.sleep(0.005)
    program.send(signal.SIGINT)
    time.sleep(0.3)
    said = b""
    while program.is_alive:
        with contextlib.suppress(BlockingIOError):
            said += os.read(pipe, 65536)
    os.close(pipe)
    assert b"reentrant" not in said


# ---- the table


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A command line, what happens, and what comes of it.

    strike: number of a step and what happens in it, see ``struck``; it: what happens from outside
    played: there is a trained run
    code: exit code; says: a word of what is printed
    leaves: files in the folder of the runs; lacks: what is not there
    agrees: the run, resumed if it has not come to its end, is the undisturbed one; ``"but replay"``: its
        segments have been written at other steps
    """

    id: str
    flags: Sequence[str] = STRUCK
    strike: str = ""
    it: Callable[[Program], None] = nothing
    played: bool = False
    output: str = "said.txt"
    code: int = 0
    says: str = ""
    leaves: Sequence[str] = ()
    lacks: Sequence[str] = ()
    agrees: bool | str = False
    slow: bool = False


SAVED = ("a/result.json", "a/checkpoints/step_000000230/manifest.json")
TABLE = [
    Scenario(id="killed between checkpoints", strike="230 SIGKILL", code=-9, agrees=True),
    Scenario(id="killed in the last evaluation", strike="300 SIGKILL", code=-9, agrees=True),
    Scenario(
        id="asked to end", strike="230 SIGTERM", code=143, says="saving", leaves=SAVED, agrees="but replay"
    ),
    Scenario(id="asked to end in the last evaluation", strike="300 SIGTERM", code=143, agrees="but replay"),
    Scenario(id="interrupted", strike="230 SIGINT", code=130, leaves=SAVED),
    Scenario(id="its terminal is closed", strike="230 SIGHUP", code=129, leaves=SAVED),
    Scenario(id="interrupted while it is made", strike="0 SIGINT", code=130, lacks=("a",)),
    Scenario(id="hangs and is interrupted twice", strike="230 hang", it=is_hanging, code=130),
    Scenario(
        id="the whole group is interrupted",
        flags=("--agents=2", *ENDLESS, "-o", "base_config.workers=2", "-o", "eval_config.per_step=-1"),
        it=gets_ctrl_c_with_its_workers,
        code=130,
        says="saving",
        leaves=("a/result.json",),
    ),
    Scenario(id="its simulator crashes", strike="230 SIGSEGV", code=-11, says="in _strike", agrees=True),
    Scenario(
        id="an environment ends the process",
        strike="230 exit",
        lacks=("a/result.json",),
        agrees=True,
    ),
    Scenario(
        id="an environment would end the program",
        strike="230 leave",
        code=4,
        says="EnvExitError",
        leaves=("a/checkpoints/step_000000229/manifest.json",),
    ),
    Scenario(
        id="a failure without its configuration",
        strike="230 configuration removed",
        code=4,
        leaves=("a/checkpoints/step_000000229/model.safetensors", "a/metrics.csv", "a/train.log"),
    ),
    Scenario(
        id="its folder is moved",
        strike="150 folder moved",
        code=6,
        leaves=("moved/config.yaml", "moved/checkpoints/step_000000100/manifest.json"),
        lacks=("a",),
    ),
    Scenario(
        id="its disk is full",
        strike="150 disk full",
        code=6,
        leaves=("a/checkpoints/step_000000100/manifest.json",),
        agrees=True,
    ),
    Scenario(
        id="no output can be written for a while",
        flags=(*TALKATIVE, *SELDOM_SAVED),
        it=cannot_write_its_output_for_a_while,
        code=143,
        leaves=("a/result.json",),
    ),
    Scenario(id="no output at all", output="", agrees=True),
    Scenario(id="nobody reads its output", output=PIPE, it=loses_its_reader, agrees=True),
    Scenario(
        id="a line waits for its reader", flags=TALKATIVE, output=PIPE, it=waits_for_its_reader, code=130
    ),
    Scenario(
        id="a film is interrupted",
        played=True,
        flags=("--run", "--video", "-o", "base_config.env_args={max_episode_steps: 1000000}"),
        it=gets_ctrl_c_while_filming,
        code=130,
    ),
    Scenario(
        id="an evaluation is asked to end",
        played=True,
        flags=("--eval=9", "--record=seen.npz", "-o", "base_config.max_step_each_iter=25"),
        strike="27 SIGTERM",
        it=has_finished_one_episode,
        code=143,
    ),
    Scenario(
        id="its policy is exported",
        played=True,
        flags=("--export=../policy.onnx", "-o", "export_config.opset=9", "-o", "export_config.check=true"),
        says="largest difference",
    ),
    Scenario(
        id="hangs",
        flags=(*STRUCK, "-o", "base_config.env_timeout=1"),
        strike="230 hang",
        code=4,
        says="hangs in step or reset",
        leaves=("a/checkpoints/step_000000229/manifest.json",),
        slow=True,
    ),
    Scenario(
        id="stands still",
        flags=(*SLOW, "-o", "base_config.workers=1"),
        it=stands_still,
        leaves=("a/result.json",),
        slow=True,
    ),
    Scenario(
        id="an environment leaves things behind",
        flags=(*SLOW, "-o", "base_config.workers=1", "-o", "base_config.env_args={untidy: true}"),
        says="threads that an environment left are abandoned: simulator",
        leaves=("a/result.json",),
        slow=True,
    ),
]


@pytest.mark.fault("F02")
@pytest.mark.fault("F08")
@pytest.mark.fault("F22")
@pytest.mark.fault("F24")
@pytest.mark.fault("F34")
@pytest.mark.fault("F36")
@pytest.mark.fault("F37")
@pytest.mark.fault("F38")
@pytest.mark.fault("F39")
@pytest.mark.parametrize(
    "one", [pytest.param(one, id=one.id, marks=[pytest.mark.slow] * one.slow) for one in TABLE]
)
def test_what_happens_to_a_run(task: Path, one: Scenario) -> None:
    Path("task/config.yaml").write_text(TASK + SECTIONS)
    if one.agrees:
        straight = trained("straight", *STRUCK, "--seed=1")
    if one.played:
        trained("a", *STRUCK, "--seed=1")
    if one.strike:
        PLAN.write_text(one.strike)
    if one.output == PIPE:
        os.mkfifo(PIPE)
    program = Program(
        Path.cwd(), "-n", "a", *([] if one.played else ["--seed=1"]), *one.flags, output=one.output
    )
    try:
        one.it(program)
        assert program.end() == one.code, program.said
    finally:
        program.kill()
    assert one.says in program.said
    assert "internal error" not in program.said
    assert [name for name in one.leaves if not (task / name).exists()] == []
    assert [name for name in one.lacks if (task / name).exists()] == []
    if one.agrees:
        if one.code or "a/result.json" in one.lacks:
            assert run("--resume", "-n", "a", "--quiet") == 0
        found, expected = what_must_agree(task / "a"), what_must_agree(straight)
        if one.agrees == "but replay":
            del found["replay"], expected["replay"]
        assert found == expected
        assert result(task / "a")["last_eval"] == result(straight)["last_eval"]


# ---- before all is imported


@pytest.mark.fault("F22")
def test_a_signal_during_the_imports_ends_without_a_trace(task: Path) -> None:
    command = [sys.executable, str(ROOT / "main.py"), "./task", "--device=cpu", "-n", "a"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=subprocess.STDOUT, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("task, config.yaml"), "said before torch is loaded"
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == 130
    assert "interrupted" in output and "Traceback" not in output
    assert not (task / "a").exists()


@pytest.mark.fault("F22")
def test_an_import_that_swallows_the_interrupt_does_not_keep_the_process() -> None:
    code = (
        "import os, signal\n"
        "from algorithm.app.command import interruptible_imports\n"
        "with interruptible_imports():\n"
        "    try: os.kill(os.getpid(), signal.SIGINT)\n"
        "    except BaseException: pass\n"
        "    print('went on')"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert (process.returncode, process.stdout) == (130, b"")
