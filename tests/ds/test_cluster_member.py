"""A learner's or an actor's process on a node, without Ray."""

import signal
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from algorithm.app.cli.ds import DistributedOptions
from algorithm.app.cli.train import TrainOptions
from ds.cluster.member import Order
from tests.ds.fake_ray import FakeRay

LIMIT = 60.0
OPTIONS = DistributedOptions(role="actor", train=TrainOptions(env=""))


class Node:
    """A node with a member in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lines = folder, list[str]()
        self._ray = FakeRay()
        self.member = self._ray.member(str(folder), "run", ["main_ds.py", "task"])

    def begin(self, what: str, **more: object) -> None:
        """Start a process that does this."""
        options = replace(OPTIONS, train=replace(OPTIONS.train, overrides=(what,)))
        order = Order(module="tests.ds.performing", options=options, **more)  # type: ignore[arg-type]
        self.lines.clear()
        self.member.start(order)

    def code(self) -> int | None:
        """Its exit code as soon as it has ended."""
        report = self.member.report()
        self.lines += report.lines
        return report.code

    def end(self, what: str, **more: object) -> int:
        """Let a process end that does this; return its exit code."""
        self.begin(what, **more)
        return self.wait(self.code)

    def wait(self, condition: Callable[[], int | None]) -> int:
        deadline = time.monotonic() + LIMIT
        while (value := condition()) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return value

    def wait_until_up(self) -> None:
        self.wait(lambda: 1 if (self.folder / "up").exists() else None)

    def close(self) -> None:
        self.member._end_former()
        self._ray.close()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.chdir(tmp_path)
    node = Node(tmp_path)
    yield node
    node.close()


def test_a_process_has_its_folder_and_secrets_and_nothing_of_ray(node: Node) -> None:
    assert node.end("show", secrets={"token": b"abc"}) == 6
    words, modes, ray, last = node.lines
    folder, *typed, private, in_main_thread = words.split()
    assert (folder, typed, in_main_thread) == (str(node.folder), ["main_ds.py", "task"], "True")
    assert modes == f"{stat.S_IFDIR | 0o700:o} {stat.S_IFREG | 0o600:o} abc"
    assert (ray, last) == ("[]", "last")
    assert not Path(private).exists(), "its files go with it"


def test_secrets_end_with_a_process_that_is_killed(node: Node) -> None:
    """Its next life may be on another node, so that nobody comes back to remove them."""
    node.begin("wait", secrets={"token": b"abc", "learner.key": b"key"})
    node.wait_until_up()
    private, process = node.member._private, node.member._process
    assert process is not None
    assert (private / "learner.key").read_bytes() == b"key"
    process.kill()
    process.join()
    left = {path.name for path in private.iterdir() if path.exists()}
    assert left == {"output.txt"}


@pytest.mark.parametrize(
    ("what", "code", "lines"),
    [("raise", 1, ["out"]), ("leave", 4, []), ("crash", -signal.SIGKILL, ["before", "the end"])],
)
def test_the_end_of_a_process_is_reported_with_what_it_printed(
    node: Node, what: str, code: int, lines: list[str]
) -> None:
    assert node.end(what) == code
    assert node.lines == lines
    assert node.code() == code, "again, for an answer may be lost"


def test_a_process_gets_signals_and_ends_where_another_begins(node: Node) -> None:
    node.begin("wait")
    node.wait_until_up()
    node.member.signal(signal.SIGINT)
    assert node.wait(node.code) == 130
    node.begin("wait")
    former = node.member._process
    node.begin("wait")
    assert former is not None and former.exitcode == -signal.SIGKILL


def test_a_run_is_set_aside_and_a_lock_removed_when_asked(node: Node) -> None:
    run = node.folder / "run"
    for expected in ("run_crashed_1", "run_crashed_2"):
        run.mkdir()
        node.end("raise", aside=True)
        assert not run.exists() and (node.folder / expected).is_dir()
    run.mkdir()
    for unlock in (False, True):
        (run / "run.lock").touch()
        node.end("raise", unlock=unlock)
        assert (run / "run.lock").exists() != unlock
