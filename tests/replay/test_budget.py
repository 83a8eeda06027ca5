"""What is free, in machines and in control groups, and the refusal of a replay that cannot fit."""

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from algorithm.core.errors import UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR, ActionSpec, AgentSpec, ObsSpec
from algorithm.core.system.memory import free_memory
from algorithm.replay.budget import MemoryBudget
from algorithm.replay.sizing import largest_capacity, replay_bytes

GB = 2**30
PIXELS = AgentSpec(ObsSpec(("obs",), ((84, 84, 3),), ("uint8",)), ActionSpec((), 6))
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = ("memory.max", "memory.current", "inactive_file")


class Machine:
    """The files of control groups in a folder, on a machine with 100 GB free."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._groups, self._membership = folder / "cgroup", folder / "membership"
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=100 * GB))

    def group(self, path, names, *, limit, used, cache=0, other=7):
        folder = self._groups / path
        assert folder.is_relative_to(self._groups)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / names[0]).write_text(f"{limit}\n")
        (folder / names[1]).write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon {other}\n{names[2]} {cache}\nactive_file {other}\n")

    def free(self, *membership: str) -> int:
        self._membership.write_text("".join(f"{line}\n" for line in membership))
        return free_memory(self._groups, self._membership)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("names", "root", "line", "without_limit"),
    [(V1, "memory", "4:cpu,memory:{}", 9223372036854771712), (V2, ".", "0::{}", "max")],
)
class TestControlGroups:
    def test_a_limit_counts_less_what_is_used_and_cannot_give_way(
        self, machine, names, root, line, without_limit
    ):
        machine.group(f"{root}/job", names, limit=10 * GB, used=4 * GB, cache=GB)
        assert machine.free(line.format("/job")) == 7 * GB

    def test_the_tightest_group_on_the_way_up_counts(self, machine, names, root, line, without_limit):
        machine.group(root, names, limit=without_limit, used=0)
        machine.group(f"{root}/user", names, limit=8 * GB, used=3 * GB)
        machine.group(f"{root}/user/job", names, limit=10 * GB, used=2 * GB)
        machine.group(f"{root}/stranger", names, limit=GB, used=GB)
        assert machine.free(line.format("/user/job")) == 5 * GB

    def test_no_limit_leaves_the_machine_itself(self, machine, names, root, line, without_limit):
        machine.group(root, names, limit=without_limit, used=GB)
        assert machine.free(line.format("/")) == 100 * GB

    def test_a_container_that_shows_only_its_root(self, machine, names, root, line, without_limit):
        machine.group(root, names, limit=6 * GB, used=GB)
        assert machine.free(line.format("/docker/0123")) == 5 * GB
        assert machine.free(line.format("/../../sibling")) == 5 * GB

    def test_a_group_over_its_limit_leaves_nothing(self, machine, names, root, line, without_limit):
        machine.group(root, names, limit=GB, used=2 * GB)
        assert machine.free(line.format("/")) == 0


def test_other_controllers_and_a_group_without_files_limit_nothing(machine):
    machine.group("memory/job", V1, limit=GB, used=0)
    assert machine.free("2:cpu:/job", "1:name=systemd:/", "0::/") == 100 * GB


def test_without_control_groups_the_machine_counts(machine, tmp_path):
    assert free_memory(tmp_path / "nothing", tmp_path / "nowhere") == 100 * GB


def test_this_machine_has_memory():
    assert 0 < MemoryBudget().free <= psutil.virtual_memory().total


def reserve(budget: MemoryBudget, behaviour: str, capacity: int) -> None:
    budget.reserve(
        behaviour,
        capacity=capacity,
        needed=replay_bytes(PIXELS, capacity, prioritised=True),
        largest_capacity=lambda n: largest_capacity(PIXELS, n, prioritised=True),
    )


def test_a_replay_that_cannot_fit_is_refused_with_the_number_that_would():
    with pytest.raises(UsageError) as caught:
        reserve(MemoryBudget(12 * GB), DEFAULT_BEHAVIOUR, 1_000_000)
    error = caught.value
    assert error.exit_code == 2
    # 21168 of the image, 4·(6 + 1 + 1) acting half, 12 links, 8.26 tree: 21,220 bytes a row
    assert error.what == "a replay of 1,000,000 rows needs 19.8 GB, 12.0 GB are free"
    assert error.where == "replay_config.capacity"
    assert "10%" in error.why
    assert error.fix.startswith("set replay_config.capacity to 546000 or less")  # 0.9 · 12 GB / 21,220
    reserve(MemoryBudget(12 * GB), DEFAULT_BEHAVIOUR, 546_000)


def test_a_tenth_is_left_free():
    budget = MemoryBudget(1000)
    budget.reserve("a", capacity=9, needed=900, largest_capacity=lambda n: n)
    assert budget.left == 0
    with pytest.raises(UsageError):
        MemoryBudget(1000).reserve("a", capacity=9, needed=901, largest_capacity=lambda n: n)


def test_several_behaviours_share_what_is_free():
    budget = MemoryBudget(12 * GB)
    reserve(budget, "walker", 400_000)
    with pytest.raises(UsageError) as caught:
        reserve(budget, "chaser", 400_000)
    error = caught.value
    assert error.what == "a replay of 400,000 rows needs 7.9 GB, 4.1 GB are free"
    assert error.where == "replay_config.capacity of chaser"
    assert "7.9 GB for the replays of walker" in error.why
    assert "146000 or less" in error.fix
    reserve(budget, "chaser", 146_000)  # what was refused took nothing


def test_where_not_even_two_rows_fit_no_number_is_offered():
    with pytest.raises(UsageError) as caught:
        reserve(MemoryBudget(1000), DEFAULT_BEHAVIOUR, 100)
    assert caught.value.fix == "free some memory, or use a machine with more memory"
