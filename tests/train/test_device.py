"""Which device is taken, and what is said where there is no GPU."""

import pytest
import torch

from algorithm.agents.networks import pick_device
from algorithm.core.errors import UsageError


@pytest.fixture(params=[0, 1])
def gpus(request, monkeypatch):
    """The number of GPUs that torch sees."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: request.param > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: request.param)
    return request.param


@pytest.mark.fault("F28")
def test_a_gpu_that_is_not_there_is_refused_in_one_line(gpus):
    with pytest.raises(UsageError, match="no such GPU") as caught:
        pick_device(f"cuda:{gpus}")
    assert caught.value.exit_code == 2
    assert f"sees {gpus} GPUs" in caught.value.line
    assert "auto" in caught.value.fix


@pytest.mark.fault("F28")
def test_auto_takes_a_gpu_only_where_there_is_one(gpus):
    assert pick_device("auto").type == ("cuda" if gpus else "cpu")
    assert pick_device("cpu").type == "cpu"


@pytest.mark.parametrize("name", ["cuda", "gpu"])
def test_a_gpu_that_is_there_is_taken(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert pick_device(name) == torch.device("cuda")


def test_a_device_that_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="no device 'abacus'"):
        pick_device("abacus")
