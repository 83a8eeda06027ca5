"""Settings of a process: memory that stays, threads, and the precision of matrix products."""

import platform
import subprocess
import sys

import pytest
import torch
from torch import nn

from algorithm.nn import process
from algorithm.nn.process import set_matmul_precision
from main import main

CPU, META = torch.device("cpu"), torch.device("meta")
LARGE, SMALL = nn.Linear(256, 256), nn.Linear(128, 128)
WORDS = ["toy/identity", "-c", "discrete", "--device=cpu", "--seed=1", "-n", "run"]

FAULTS = """
import resource
import torch
from algorithm.nn.process import set_up_process

for setting_up in (False, True):
    if setting_up:
        set_up_process(1)
    for count in (1, 4):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(count):
            blocks = [torch.ones(1024, 1024) for _ in range(25)]
            del blocks
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_memory_that_is_freed_is_there_when_it_is_wanted_again(root):
    words = [sys.executable, "-c", FAULTS]
    said = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True).stdout
    as_it_is, kept = map(int, said.split())
    assert 10 * kept < as_it_is, "few blocks are new, or all of them each time"


@pytest.mark.parametrize(
    ("wanted", "modules", "single", "gain", "device", "chosen"),
    [
        ("auto", [SMALL, LARGE], True, 2.0, CPU, "medium"),
        ("auto", [SMALL, LARGE], False, 2.0, CPU, "highest"),
        ("auto", [LARGE], True, 1.1, CPU, "highest"),  # hardly faster
        ("auto", [SMALL], True, 2.0, CPU, "highest"),
        ("auto", [], True, 2.0, CPU, "highest"),
        ("auto", [LARGE], True, 2.0, META, "highest"),
        ("medium", [SMALL], False, 2.0, CPU, "medium"),
        ("high", [LARGE], True, 2.0, CPU, "high"),
    ],
)
def test_auto_is_medium_for_large_networks_where_that_is_exact_and_faster(
    monkeypatch, wanted, modules, single, gain, device, chosen
):
    monkeypatch.setattr(process, "medium_is_single", lambda: single)
    monkeypatch.setattr(process, "_medium_gain", lambda: gain)
    assert set_matmul_precision(wanted, modules, device) == chosen
    assert torch.get_float32_matmul_precision() == chosen


def test_measurements_leave_the_process_as_it_was():
    assert process.medium_is_single() in (True, False)
    assert 0.1 < process._medium_gain() < 100.0
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_run_has_the_precision_and_the_threads_of_its_configuration(cwd, monkeypatch, capsys):
    monkeypatch.setattr(process, "medium_is_single", lambda: True)
    set_to = ["-o", "sac_config.matmul_precision=medium", "-o", "sac_config.threads=2"]
    try:
        assert main([*WORDS, "--max_step=20", *set_to]) == 0
        assert torch.get_float32_matmul_precision() == "medium" and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_products_of_rounded_factors_are_found_out(monkeypatch):
    x, y = torch.rand(256, 64), torch.rand(64, 32)
    assert process._error(x, y) < 1e-5
    matmul = torch.Tensor.__matmul__

    def rounded(a, b):
        return matmul(a, b) if a.dtype == torch.float64 else matmul(a.bfloat16(), b.bfloat16())

    monkeypatch.setattr(torch.Tensor, "__matmul__", rounded)
    assert process._error(x, y) > 1e-5
