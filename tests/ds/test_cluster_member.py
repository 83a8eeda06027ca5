"""A learner's or an actor's process on a node, and the board, without Ray."""

from __future__ import annotations

import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from algorithm.app.cli.ds import DistributedOptions
from algorithm.app.cli.train import TrainOptions
from ds.cluster.member import Board, Order, ProcessReport
from tests.ds.fake_ray import BoardHandle, Call, FakeRay, MemberHandle

LIMIT = 60.0
OPTIONS = DistributedOptions(role="actor", train=TrainOptions(env=""))


class Told(Board):
    """A board that keeps all reports, and gives each life the same work."""

    def __init__(self, order: Order) -> None:
        super().__init__(0)
        self.order, self.signal = order, 0
        self.told: list[ProcessReport] = []

    def report(self, key: str, report: ProcessReport) -> Order | None:
        self.told.append(report)
        return replace(self.order, life=report.life, signal=self.signal)

    @property
    def lines(self) -> list[str]:
        return [line for report in self.told for line in report.lines]

    @property
    def code(self) -> int | None:
        return self.told[-1].code if self.told else None


class Member:
    """A member in a folder, one call of ``live`` after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.private = Path(tempfile.mkdtemp(prefix="sac-test-"))
        self._handles: list[MemberHandle] = []

    def begin(self, what: str, **more: object) -> tuple[Call, Told]:
        """Start another life that does this."""
        options = replace(OPTIONS, train=replace(OPTIONS.train, overrides=(what,)))
        board = Told(Order(life="", module="tests.ds.performing", options=options, **more))  # type: ignore[arg-type]
        place = (self.private.name, str(self.folder), "run", ["main_ds.py", "task"])
        self._handles.append(MemberHandle(FakeRay()))
        return self._handles[-1].live.remote(BoardHandle(board), *place), board

    def live(self, what: str, **more: object) -> Told:
        """Let a life end."""
        call, board = self.begin(what, **more)
        wait(lambda: board.code is not None or not call.process.is_alive())
        if call.error is not None:
            raise call.error
        return board

    def close(self) -> None:
        for handle in self._handles:
            handle.kill(restart=False)


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    member = Member(tmp_path)
    yield member
    member.close()


def test_a_process_has_its_folder_and_secrets_and_nothing_of_ray(member: Member) -> None:
    board = member.live("show", secrets={"token": b"abc"})
    words, modes, ray, last = board.lines
    folder, secrets = str(member.folder), str(member.private)
    assert words == f"{folder} main_ds.py task {secrets} True", "it runs in the main thread"
    assert modes == f"{stat.S_IFDIR | 0o700:o} {stat.S_IFREG | 0o600:o} abc"
    assert (ray, last, board.code) == ("[]", "last", 6)
    wait(lambda: not member.private.exists())  # they go with the process
    assert not board.told[0].pid and board.told[-1].pid


def test_secrets_end_with_a_process_that_is_killed(member: Member) -> None:
    """Its next life may be on another node, so that nobody comes back to remove them."""
    call, _ = member.begin("wait", secrets={"token": b"abc", "learner.key": b"key"})
    wait((member.folder / "up").exists)
    assert (member.private / "learner.key").read_bytes() == b"key"
    call.process.kill()
    call.process.join()
    assert not [path for path in member.private.iterdir() if path.suffix != ".txt" and path.exists()]


def test_an_error_that_would_end_the_process_is_told(member: Member) -> None:
    board = member.live("raise")
    assert board.code == 1 and board.lines[-1] == "SystemExit: out"


def test_an_end_from_another_thread_tells_its_code(member: Member) -> None:
    assert member.live("leave").code == 4


def test_what_a_killed_process_has_printed_is_told_by_the_next_one(member: Member) -> None:
    first = member.live("crash")
    assert first.code is None
    second = member.live("raise")
    assert second.told[0].lines == ("before", "the end")
    assert not second.told[1].lines


def test_an_ordered_signal_comes_once(member: Member) -> None:
    _, board = member.begin("wait")
    wait((member.folder / "up").exists)
    board.signal = signal.SIGINT
    wait(lambda: board.code is not None)
    assert board.code == 130


def test_a_process_that_is_spawned_does_not_import_the_script_of_ray(member: Member) -> None:
    board = member.live("spawn")
    assert board.lines == ["main is None"]


def test_a_run_is_set_aside_and_a_lock_removed_when_asked(member: Member) -> None:
    run = member.folder / "run"
    for expected in ("run_crashed_1", "run_crashed_2"):
        run.mkdir()
        member.live("raise", aside=True)
        assert not run.exists() and (member.folder / expected).is_dir()
    run.mkdir()
    for unlock in (False, True):
        (run / "run.lock").touch()
        member.live("raise", unlock=unlock)
        assert (run / "run.lock").exists() != unlock


def test_a_board_that_was_started_again_learns_the_number_of_actors() -> None:
    board = Board(2)
    assert board.scale(5) == 2
    assert board.scale(4) == 5
    assert board.exchange({}, 2) == (4, [])
    assert Board(2).exchange({}, 4) == (4, [])
