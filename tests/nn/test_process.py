"""Settings of a process: memory that stays, and the precision of matrix products."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch
from torch import nn

from algorithm.nn import process
from algorithm.nn.process import set_matmul_precision
from main import main

CPU = torch.device("cpu")
LARGE, SMALL = nn.Linear(256, 256), nn.Linear(128, 128)

FAULTS = """
import resource, sys
import torch
from algorithm.nn.process import set_up_process

if sys.argv[1] == "kept":
    set_up_process(1)
for count in (2, 10):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        blocks = [torch.ones(1024, 1024) for _ in range(25)]
        del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_memory_that_is_freed_is_there_when_it_is_wanted_again(root):
    def faults(how: str) -> int:
        words = [sys.executable, "-c", FAULTS, how]
        return int(subprocess.run(words, cwd=root, capture_output=True, text=True, check=True).stdout)

    assert 10 * faults("kept") < faults("as it is")  # few blocks are new, or all of them each time


@pytest.mark.parametrize(
    ("wanted", "modules", "single", "device", "chosen"),
    [
        ("auto", [SMALL, LARGE], True, CPU, "medium"),
        ("auto", [SMALL, LARGE], False, CPU, "highest"),
        ("auto", [SMALL], True, CPU, "highest"),
        ("auto", [], True, CPU, "highest"),
        ("auto", [LARGE], True, torch.device("meta"), "highest"),
        ("medium", [SMALL], False, CPU, "medium"),
        ("high", [LARGE], True, CPU, "high"),
    ],
)
def test_auto_is_medium_for_large_networks_where_that_is_exact(
    monkeypatch, wanted, modules, single, device, chosen
):
    monkeypatch.setattr(process, "medium_is_single", lambda: single)
    monkeypatch.setattr(process, "_medium_gain", lambda: 2.0)
    assert set_matmul_precision(wanted, modules, device) == chosen
    assert torch.get_float32_matmul_precision() == chosen


def test_auto_leaves_a_library_that_is_hardly_faster(monkeypatch):
    monkeypatch.setattr(process, "medium_is_single", lambda: True)
    monkeypatch.setattr(process, "_medium_gain", lambda: 1.1)
    assert set_matmul_precision("auto", [LARGE], CPU) == "highest"


def test_the_gain_of_a_library_is_measured():
    assert 0.1 < process._medium_gain() < 100.0
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize(
    ("units", "single", "device", "rounds"),
    [
        (True, True, CPU, True),
        (False, True, CPU, False),
        (True, False, CPU, False),
        (True, True, torch.device("meta"), False),
    ],
)
def test_graphs_round_where_torch_leaves_units_for_that_alone(monkeypatch, units, single, device, rounds):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: units)
    monkeypatch.setattr(process, "medium_is_single", lambda: single)
    assert process.graphs_round(device) is rounds
    monkeypatch.delattr(torch.cpu, "_is_avx512_bf16_supported")
    assert not process.graphs_round(device)


def test_products_of_rounded_factors_are_found_out():
    x, y = torch.rand(256, 64), torch.rand(64, 32)
    assert process._error(x, y) < 1e-5
    rounded = x.bfloat16().float() @ y.bfloat16().float()
    assert float((rounded / (x @ y) - 1.0).abs().max()) > 1e-5
    assert process.medium_is_single() in (True, False)
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_training_has_the_precision_that_its_configuration_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process, "medium_is_single", lambda: True)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    words = ["toy/identity", "-c", "discrete", "--device=cpu", "--max_step=20", "--seed=1"]
    for precision, said in (
        ("highest", "cpu, 1 thread\n"),
        ("medium", "in medium precision, bfloat16 in compiled updates"),
    ):
        assert main([*words, "-o", f"sac_config.matmul_precision={precision}"]) == 0
        assert torch.get_float32_matmul_precision() == precision
        assert said in capsys.readouterr().out
    assert main([*words, "-o", "sac_config.matmul_precision=best"]) == 2
    assert "matmul_precision" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "number"),
    [({1: 1.0}, 1), ({1: 1.0, 2: 0.6}, 2), ({1: 1.0, 2: 0.95}, 1), ({1: 1.0, 2: 0.6, 4: 0.55, 8: 0.4}, 8)],
)
def test_threads_have_to_pay(seconds, number):
    assert process.fastest(seconds) == number


def test_threads_are_measured_in_turns_and_set_back():
    found = process.measure_threads(3)
    assert list(found) == [1, 2] and all(0.0 < taken < 10.0 for taken in found.values())
    assert torch.get_num_threads() == 1


def test_a_run_keeps_the_threads_that_were_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("algorithm.train.assembly.measure_threads", lambda: {1: 0.010, 2: 0.005})
    words = ["toy/identity", "-c", "discrete", "--device=cpu", "--seed=1", "-n", "run"]
    try:
        assert main([*words, "--max_step=20", "-o", "sac_config.threads=auto"]) == 0
        assert "threads: 2, measured: 10.0 ms with 1, 5.0 ms with 2" in capsys.readouterr().out
        (config,) = tmp_path.glob("models/toy/identity/run/config.yaml")
        assert "threads: 2" in config.read_text()
        monkeypatch.setattr("algorithm.train.assembly.measure_threads", dict)  # not asked again
        assert main(["toy/identity", "-n", "run", "--resume", "--max_step=30", "--device=cpu"]) == 0
    finally:
        torch.set_num_threads(1)
