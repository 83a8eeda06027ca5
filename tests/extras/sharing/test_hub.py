"""Uploads to a hub and downloads from it, where the library's client keeps files in memory."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest

import asac
from algorithm.core.errors import StorageError, UsageError
from algorithm.extras.sharing.hub import push
from main import main
from tests.extras.sharing.exports import members_of


class RefusalError(Exception):
    """What the library raises for an answer of the hub with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status} Client Error")
        self.response = SimpleNamespace(status_code=status)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A client with the signatures of the real one; ``files``: repository → name → content."""
    library = pytest.importorskip("huggingface_hub")
    api, files = create_autospec(library.HfApi, instance=True), {}

    def commit(repository, operations, **_):
        files[repository] = {one.path_in_repo: one.path_or_fileobj for one in operations}

    def download(repository, name, revision):
        if repository not in files:
            raise RefusalError(404)
        (tmp_path / "cached.zip").write_bytes(files[repository][name])
        return str(tmp_path / "cached.zip")

    api.create_repo.side_effect = lambda repository, **_: f"https://hub.test/{repository}"
    api.create_commit.side_effect = commit
    api.hf_hub_download.side_effect = download
    monkeypatch.setattr(library, "HfApi", lambda: api)
    monkeypatch.chdir(tmp_path)
    api.files = files
    return api


def command(run: asac.Run, *words: str) -> list[str]:
    return ["CartPole-v1", "--directory", str(run.folder.parents[1]), "-n", "first", *words]


def test_a_run_goes_there_in_one_commit_and_comes_back(run, hub, tmp_path, capfd):
    assert main(command(run, "--push", "me/cart-pole", "--private", "--export", "here.zip")) == 0
    assert hub.create_repo.call_args.kwargs == {"private": True, "exist_ok": True}
    assert hub.create_commit.call_count == 1
    files = dict(hub.files["me/cart-pole"])
    assert files.pop("run.zip") == Path("here.zip").read_bytes()
    assert files == members_of(tmp_path / "here.zip")
    assert b'asac.Run("hf://me/cart-pole")' in files["README.md"]
    said = capfd.readouterr().out
    assert "https://hub.test/me/cart-pole" in said and "-n hf://me/cart-pole --eval=10" in said

    assert asac.load("hf://me/cart-pole@main").step == run.policy().step
    assert hub.hf_hub_download.call_args.kwargs == {"revision": "main"}
    assert main(["CartPole-v1", "-n", "hf://me/cart-pole", "--eval=1", "--device=cpu", "--quiet"]) == 0
    assert (tmp_path / "models" / "CartPole-v1" / "me_cart-pole.zip" / "evaluation.json").exists()
    assert run.push("me/second", 120) == "https://hub.test/me/second"
    assert hub.create_repo.call_args.kwargs["private"] is None


@pytest.mark.parametrize(
    ("error", "code", "fix"),
    [
        (RefusalError(401), 2, "hf auth login"),
        (RefusalError(403), 2, "a token that may write there"),
        (RefusalError(500), 6, "nothing is lost"),
        (ConnectionError("no route"), 6, "check the connection"),
    ],
)
def test_what_goes_wrong_in_an_upload_is_told(run, hub, capfd, error, code, fix):
    hub.create_repo.side_effect = error
    assert main(command(run, "--push", "me/a")) == code
    said = capfd.readouterr().err
    assert fix in said and str(error) in said


def test_what_goes_wrong_in_a_download_is_told(hub):
    with pytest.raises(UsageError, match="cannot be downloaded") as caught:
        asac.load("hf://me/nothing")
    assert "check that the name is right" in caught.value.fix
    hub.files["me/a"] = {"run.zip": b"no export"}
    with pytest.raises(StorageError, match="cannot be used") as caught:
        asac.load("hf://me/a")
    assert caught.value.where == "hf://me/a"


@pytest.mark.parametrize("name", ["alone", "a/b/c", "me/", "/a", "me/a b", "../a/b"])
def test_a_name_that_no_repository_has_is_refused(name):
    with pytest.raises(UsageError, match="not a repository of the hub"):
        push(name, {"README.md": b""})


def test_without_the_library_the_command_that_installs_it_is_named(run, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(command(run, "--push", "me/a")) == 2
    assert "[hub]" in capfd.readouterr().err
