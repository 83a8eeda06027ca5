"""Uploads to a hub and downloads from it, where the hub is a stand-in on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import asac
from algorithm.app.sharing.hub import push
from algorithm.core.errors import StorageError, UsageError
from main import main
from tests.sharing.exports import members_of
from tests.sharing.hub_standin import Hub, serving


@pytest.fixture
def hub(tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with serving() as served:
        template = served.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", served.address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield served


def command(run: asac.Run, *words: str) -> list[str]:
    return ["CartPole-v1", "--directory", str(run.folder.parents[1]), "-n", "first", *words]


def test_a_run_goes_there_in_one_commit_and_comes_back(run, hub: Hub, tmp_path, capfd):
    assert main(command(run, "--push", "me/cart-pole", "--private", "--export", "here.zip")) == 0
    assert hub.created[0]["name"] == "cart-pole" and hub.created[0]["organization"] == "me"
    assert "private" in json.dumps(hub.created[0])
    assert hub.tokens == {"Bearer hf_secret"} and len(hub.commits) == 1
    files = hub.files["me/cart-pole"]
    assert files.pop("run.zip") == Path("here.zip").read_bytes()
    assert files == members_of(tmp_path / "here.zip")
    assert hub.cards == [files["README.md"].decode()]
    assert 'asac.Run("hf://me/cart-pole")' in hub.cards[0]
    said = capfd.readouterr().out
    assert f"{hub.address}/me/cart-pole" in said and "-n hf://me/cart-pole --eval=10" in said

    hub.files["me/cart-pole"]["run.zip"] = Path("here.zip").read_bytes()
    shared = asac.Run("hf://me/cart-pole")
    assert shared.evaluate(2) == run.evaluate(2)
    assert asac.load("hf://me/cart-pole@main").step == shared.policy().step
    assert main(["CartPole-v1", "-n", "hf://me/cart-pole", "--eval=1", "--device=cpu", "--quiet"]) == 0
    assert (tmp_path / "models" / "CartPole-v1" / "me_cart-pole.zip" / "evaluation.json").exists()


@pytest.mark.parametrize(
    "status, path, fix",
    [
        (401, "/api/repos/create", "hf auth login"),
        (403, "/api/repos/create", "a token that may write there"),
        (403, "/commit/", "a token that may write there"),
        (500, "/api/repos/create", "nothing is lost"),
    ],
)
def test_a_refusal_of_the_hub_is_told(run, hub: Hub, capfd, status, path, fix):
    hub.refuses = (status, path)
    assert main(command(run, "--push", "me/a")) == (6 if status == 500 else 2)
    said = capfd.readouterr().err
    assert "the export cannot be uploaded" in said and fix in said and str(status) in said
    assert "hf_secret" not in said and hub.files == {}


def test_no_connection_is_told(run, hub: Hub, monkeypatch, capfd):
    with serving() as gone:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", gone.address)
    assert main(command(run, "--push", "me/a")) == 6
    assert "look at the connection" in capfd.readouterr().err


def test_a_repository_without_an_export_is_told(hub: Hub):
    with pytest.raises(UsageError, match="cannot be downloaded") as caught:
        asac.load("hf://me/nothing")
    assert "look whether the name is right" in caught.value.fix


def test_what_comes_from_the_hub_is_verified(run, exported, hub: Hub):
    changed = bytearray(exported.read_bytes())
    changed[len(changed) // 2] ^= 1
    hub.files["me/a"] = {"run.zip": bytes(changed)}
    with pytest.raises(StorageError, match="cannot be used") as caught:
        asac.load("hf://me/a")
    assert caught.value.where == "hf://me/a"


@pytest.mark.parametrize("name", ["alone", "a/b/c", "me/", "/a", "me/a b", "../a/b"])
def test_a_name_that_is_none_is_told(name):
    with pytest.raises(UsageError, match="no repository of the hub"):
        push(name, {"README.md": b""})


def test_without_the_library_the_command_that_installs_it_is_named(run, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(command(run, "--push", "me/a")) == 2
    assert "[hub]" in capfd.readouterr().err
