"""Every fault has a test, and every exit code a row in ``docs/reliability.md``."""

from __future__ import annotations

import re
from pathlib import Path

from algorithm.core.system.processes import STOP_SIGNALS

ROOT = Path(__file__).resolve().parents[2]
FAULTS = {
    "F01": "kill -9 while a checkpoint is written",
    "F02": "kill -9 between two checkpoints",
    "F03": "an actor is killed",
    "F04": "the learner is killed and started again",
    "F05": "an actor stands still for half a minute",
    "F06": "a learner that is slower than its actors",
    "F07": "a checkpoint that is cut short, changed or empty",
    "F08": "a full disk",
    "F09": "a folder that cannot be written",
    "F10": "an observation or reward that is NaN or infinite",
    "F11": "a reward of 1e30",
    "F12": "an environment that raises",
    "F13": "an environment that hangs or dies",
    "F14": "an environment that breaks its spaces",
    "F15": "spaces that change after a restart",
    "F16": "random bytes, endless frames and repeated messages at the learner",
    "F17": "an episode that is too long for a message",
    "F18": "a wrong token or certificate",
    "F19": "an actor with other settings, networks or versions",
    "F20": "a port that is in use",
    "F21": "a configuration with mistakes",
    "F22": "SIGINT or SIGTERM at any time, once or twice",
    "F23": "kill -9 of the main process of workers",
    "F24": "two processes that train one run",
    "F25": "a resume with another configuration",
    "F26": "a checkpoint or replay that was made to do harm",
    "F27": "a network that is slow, loses packets or is gone",
    "F28": "a GPU that does not exist",
    "F29": "a member of a population that dies, or an evolver that is killed",
    "F30": "a flood of idle connections, or no free descriptor",
    "F31": "a message with an impossible number",
    "F32": "messages that are made to cost the learner much",
    "F33": "a certificate that has expired or is not valid yet",
    "F34": "a stopped process, or a hang in the main process",
    "F35": "an environment that starts processes of its own",
    "F36": "an environment that ends the program",
    "F37": "an environment that leaves threads behind or cannot be closed",
    "F38": "a standard output that is closed, full or not UTF-8",
    "F39": "a run's folder that is moved or removed",
    "F40": "networks in a file outside the task",
    "F41": "a changed manifest of a checkpoint",
    "F42": "files of a run that are something else",
    "F43": "YAML that grows without end, names that steer a terminal",
    "F44": "other libraries or other code at a resume",
    "F45": "values of a wrong type, out of bounds or far from all others",
}
"""Number of a fault -> what the tests inject that are marked with it."""
CODE_ROW = re.compile(r"^\| ([\d, ]+) \| (.+) \|$", re.M)
CODE = re.compile(r"(?:exit_code|EXIT_\w+) = (\d+)$", re.M)
MARK = re.compile(r"^(?:@|pytestmark = )pytest\.mark\.fault\(\"(F\d\d)\"\)", re.M)


def test_every_fault_has_a_test_and_no_test_another_one() -> None:
    texts = [file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py")]
    assert sorted({fault for text in texts for fault in MARK.findall(text)}) == list(FAULTS)


def test_the_table_has_every_exit_code_and_no_other() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    told = {int(code) for codes, _ in CODE_ROW.findall(page) for code in codes.split(",")}
    files = [*(ROOT / "algorithm").rglob("*.py"), *(ROOT / "ds").rglob("*.py")]
    codes = {int(code) for file in files for code in CODE.findall(file.read_text("utf-8"))}
    assert told == {0, *codes, *(128 + number for number in STOP_SIGNALS)}
