"""Every command of the README and the docs is executed, as it stands but shorter.

What a training is shortened by is appended to its command line, and ``NAME`` becomes the name of a run. What
nobody here can execute stands in ``NOT_RUN`` with the reason; a command that is not known is a failure.
Those of other pages than ``OFTEN`` are executed with ``-m slow``.
"""

from __future__ import annotations

import re
import shlex
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from algorithm.app.cli.ds import parse_distributed
from algorithm.app.cli.flag_types import is_export
from algorithm.app.cli.parsing import parse_args
from algorithm.app.cli.train import TrainOptions
from algorithm.app.cli.train_flags import config_flags
from algorithm.config import load_config
from main import main
from tests.ds.processes import finish, run_command, said
from tests.house.test_docs import PAGES, ROOT, blocks_of, commands_of
from tests.house.test_presets import STEPS, build_flags, shrunk

Words = tuple[str, ...]

NOT_RUN = {
    r"python scripts/reference.py --write": "tests/config/test_files.py compares what it writes",
    r"python scripts/pages.py --write": "tests/house/test_docs.py compares what it writes",
    r"python -m benchmarks.tables --write": "tests/benchmarks/test_benchmarks.py compares what it writes",
    r"make ": "its target is looked for; some would install, or run these tests",
    r"export ": "changes the shell it is typed in",
    r"source .venv/bin/activate": "changes the shell it is typed in; the tests run in that environment",
    r"python main.py walk.py:Walk --watch": "it has no picture",
    r"pip install ": "tests/house/test_make.py compares what is installed with what is resolved",
    r"sudo apt ": "installs packages of the system",
    r"ray start ": "leaves a cluster behind; tests/ds/test_on_ray.py starts its own",
    r"python main_ds.py \S+ (cluster|evolver)": "tests/ds/test_on_ray.py starts them on a Ray of its own",
    r"wandb (login|sync)": "needs an account",
    r"python -m zipfile ": "is Python's own",
    r"python main.py gym/cart_pole .*wandb_config.project=cart_pole -n online": "needs an account",
    r"python scripts/screenshots.py": "writes the pictures of the docs, see tests/site/test_site.py",
    r"python -m benchmarks ": "measures for minutes, shortened in tests/benchmarks/test_benchmarks.py",
    r"python main.py \S+ --editor": "waits for somebody who presses Play; extras/unity/testing does so",
    r"python -m algorithm.extras.unity.testing ": "waits for a trainer",
    r"python main.py (gymnasium_robotics|my_reach.py|robot.py):": "another package, or the reader's own file",
    r"python main.py own/walk": "tests/house/test_presets.py trains and plays the worked example",
}
"""How commands begin that are not executed, and why."""


def commands_by_page(pages: list[Path]) -> Iterator[tuple[Path, list[Words]]]:
    """The commands of each shell block, in their order."""
    for page in pages:
        for block in blocks_of(page, page.read_text("utf-8")):
            if block.language == "sh":
                yield page, [as_script(words) for words in commands_of(block.text)]


def as_script(words: list[str]) -> Words:
    """The command as it is in the checkout: ``asac`` is ``python main.py``."""
    scripts = {"asac": "main.py", "asac-ds": "main_ds.py"}
    return ("python", scripts[words[0]], *words[1:]) if words[0] in scripts else tuple(words)


COMMAND_PAGE = ROOT / "docs" / "command_line.md"
OFTEN = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", COMMAND_PAGE)
OWN_PAGE = ROOT / "docs" / "own_environment.md"
BLOCKS = list(commands_by_page(PAGES))
EXECUTED_OFTEN = {words for page, block in BLOCKS if page in OFTEN for words in block}
COMMANDS = sorted({words for _, block in BLOCKS for words in block})


def reason(words: Words) -> str | None:
    """Why the command is not executed; None if it is."""
    text = shlex.join(words)
    return next((why for begins, why in NOT_RUN.items() if re.match(begins, text)), None)


def chosen(fits: Callable[[Words], bool]) -> list[object]:
    """The commands to execute, those of no page of ``OFTEN`` marked as slow."""
    return [
        words if words in EXECUTED_OFTEN else pytest.param(words, marks=pytest.mark.slow)
        for words in COMMANDS
        if reason(words) is None and fits(words)
    ]


MY_ENV = """\
from gymnasium.envs.classic_control import CartPoleEnv as MyEnv
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all commands are typed in, with the files they name; one finds the runs of another."""
    desk = tmp_path_factory.mktemp("desk")
    (desk / "my_env.py").write_text(MY_ENV)
    blocks = blocks_of(OWN_PAGE, OWN_PAGE.read_text())
    (walk,) = (block.text for block in blocks if "class Walk" in block.text)
    (desk / "walk.py").write_text(walk)
    for example in (ROOT / "docs" / "examples").glob("*.py"):
        shutil.copy(example, desk)
    (desk / "settings.yaml").write_text("default:\n  sac_config: {n_step: 3}\n")
    return desk


@pytest.fixture
def there(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(desk)
    return desk


def prepare(options: TrainOptions, desk: Path, name: str) -> None:
    """A run of that name to play with, unless there is one."""
    if not (desk / options.directory / options.env / name).exists():
        section = ["-c", options.config] if options.config else []
        small = shrunk(options.env, options.config)
        flags = ["-n", name, "--seed=1", "--quiet", "--directory", str(options.directory)]
        flags += [*small, *build_flags(options.env, desk)]
        assert main([options.env, *section, *flags]) == 0


def prepare_files(options: TrainOptions, desk: Path) -> None:
    """The run or the export to play with, and none where an export will be written."""
    name = options.name or "first"
    prepare(options, desk, "first" if is_export(name) else name)
    if is_export(name) and not (desk / name).exists():
        assert main([options.env, "-n", "first", "--quiet", "--export", name]) == 0
    if options.export:
        (desk / options.export).unlink(missing_ok=True)
        (desk / options.export).with_suffix(".json").unlink(missing_ok=True)


def of_study(options: TrainOptions, given: Sequence[str], desk: Path) -> list[str]:
    """The flags of a study of one trial; one that is there already goes on as it is."""
    small = ["-o", "tune_config.trials=1", "-o", "tune_config.final_seeds=0", *shrunk(options.env, None)]
    if not options.resume:
        return small
    if not (desk / options.directory / options.env / (options.tune or "")).exists():
        assert main([options.env, "--tune", options.tune or "study", *small]) == 0
    return []


def of_runs(options: TrainOptions, given: Sequence[str], desk: Path) -> list[str]:
    """The arguments of a report or of matches, with the runs that they name."""
    for text in (*options.report, *options.play_against):
        if text != "random":
            prepare(options, desk, text.partition(":")[0].replace("*", "1"))
    return [*(word.partition(":")[0] for word in given), *["--eval=2"] * bool(options.play_against)]


def shortened(words: Words, desk: Path) -> list[str]:
    """The arguments of a ``main.py`` command that takes a moment, with the run that it needs."""
    given = [word.replace("NAME", "first") for word in words[2:]]
    if "-p" in given:  # which may be taken here
        given[given.index("-p") + 1] = str(free_port())
    options = parse_args(given)
    if options.report or options.play_against:
        return of_runs(options, given, desk)
    if options.tune is not None:
        return [*given, *of_study(options, given, desk)]
    if options.plays or options.resume or options.export is not None:
        prepare_files(options, desk)
    if options.resume:
        return [*given, f"--max_step={STEPS + 20}"]
    if options.plays or options.export is not None:
        return [*given, "--max_iter=1"] if options.run else given
    if options.repeat > 1:
        given[given.index("--repeat") + 1] = "1"
    family = [f"algorithm={options.algorithm}"] if options.algorithm else []
    return [
        *given,
        *shrunk(options.env, options.config, [*family, *options.overrides]),
        *build_flags(options.env, desk),
    ]


@pytest.mark.parametrize("words", chosen(lambda words: words[1:2] == ("main.py",)), ids=shlex.join)
def test_a_command_of_main(words: Words, there: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(shortened(words, there)) == 0, capfd.readouterr().err


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


PAIRS = {
    (block[i], block[i + 1]): page
    for page, block in reversed(BLOCKS)
    for i, words in enumerate(block[:-1])
    if words[1:2] == ("main_ds.py",) and words[3] == "learner" and reason(words) is None
}
"""A learner, the actor on the next line, and the first page that has them."""


@pytest.mark.parametrize(
    "pair",
    [
        pair if page == COMMAND_PAGE else pytest.param(pair, marks=pytest.mark.slow)
        for pair, page in sorted(PAIRS.items())
    ],
    ids=lambda pair: shlex.join(pair[0]),
)
def test_a_learner_and_its_actor(pair: tuple[Words, Words], tmp_path: Path) -> None:
    flags = [f"--learner_port={free_port()}", *shrunk()]
    of_actor = [word for word in flags if not word.startswith("--max_step")]
    learner = run_command(tmp_path, "learner", [*pair[0][2:], *flags])
    actor = run_command(tmp_path, "actor", [*pair[1][2:], *of_actor])
    try:
        assert finish(learner) == 0, said(tmp_path)
        assert finish(actor) == 0, said(tmp_path)
    finally:
        actor.kill()  # it would wait for a learner
        learner.kill()
    assert list(tmp_path.glob("models/*/*/*/result.json"))


def check_command(words: list[str]) -> None:
    """Fail unless a command of ours exists and understands its arguments."""
    if words[0] == "make":
        targets = {word for word in words[1:] if "=" not in word and not word.startswith("-")}
        assert targets <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)), words
    elif words[:2] == ["python", "main.py"]:
        parse_args(words[2:])
    elif words[:2] == ["python", "main_ds.py"]:
        parse_distributed(words[2:])
    elif words[:2] == ["python", "-m"]:
        assert find_spec(words[2]), words
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file(), words


def test_each_command_is_executed_or_says_why_not() -> None:
    in_pairs = {words for pair in PAIRS for words in pair}
    for words in COMMANDS:
        check_command(list(words))
        ways = [
            reason(words) is not None,
            reason(words) is None and words[1:2] == ("main.py",),
            words in in_pairs,
        ]
        assert sum(ways) == 1, (
            f"no test executes {shlex.join(words)}: teach one, or say in NOT_RUN why nobody can"
        )
    for begins in NOT_RUN:
        assert any(re.match(begins, shlex.join(words)) for words in COMMANDS), (
            f"{begins} is a reason for nothing"
        )


def flags_of_other_trainers() -> Iterator[tuple[str, str]]:
    """What other programs are given, and what it is here, which may be nothing."""
    page = (ROOT / "docs" / "families.md").read_text("utf-8")
    lines = page.partition("\n## Coming from other trainers\n")[2].partition("\n## ")[0].splitlines()
    for line in lines:
        if line.startswith("|") and "`" in line:
            there, here, _ = line.strip("|").split("|")
            yield there.strip(), here.strip().strip("`")


def test_what_a_flag_of_another_trainer_is_here_is_understood() -> None:
    """It is given to a task of the algorithm that it is about."""
    found = dict(flags_of_other_trainers())
    assert len(found) > 25 and "`--alpha 0.2`" in found
    for here in filter(None, found.values()):
        given = shlex.split(here)
        options = parse_args(["CartPole-v1", *given] if given[0].startswith("-") else given)
        about = re.search(r"--algorithm (\w+)|\b(ppo|a2c)_config", here)
        algorithm = (about[1] or about[2].upper()) if about else "SAC"
        overrides = [f"algorithm={algorithm}", "base_config.max_step=1000", *options.overrides]
        load_config("CartPole-v1", None, overrides, config_flags(options), seed=1)
