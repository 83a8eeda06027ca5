"""Exports on the Hugging Face hub, by its own library, which is imported when it is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from algorithm.app.cli.flag_types import HUB
from algorithm.core.errors import StorageError, UsageError, UserError, described
from algorithm.env.install_hints import install_command

if TYPE_CHECKING:
    from huggingface_hub import HfApi

FILE = "run.zip"
"""Name of the export within its repository; its members lie beside it to be looked at."""

_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def push(repository: str, files: Mapping[str, bytes], *, private: bool = False) -> str:
    """Put files into a repository of models, in one commit; it is made if there is none. Return its address.

    repository: ``OWNER/NAME``
    Raises UsageError and StorageError with what to do.
    """
    api = hub_api(repository)
    from huggingface_hub import CommitOperationAdd

    operations = [CommitOperationAdd(name, files[name]) for name in sorted(files)]
    try:
        address = api.create_repo(repository, private=private or None, exist_ok=True)
        api.create_commit(repository, operations, commit_message="Share a run")
    except Exception as error:  # of the library, and of those that it uses
        raise _told(error, "the export cannot be uploaded", repository) from error
    return str(address)


def fetch(source: str) -> Path:
    """Return the file of an export on the hub, in the library's cache. Raises UsageError, StorageError."""
    repository, _, revision = source.removeprefix(HUB).partition("@")
    api = hub_api(repository)
    try:
        return Path(api.hf_hub_download(repository, FILE, revision=revision or None))
    except Exception as error:
        raise _told(error, "the export cannot be downloaded", repository) from error


def hub_api(repository: str) -> HfApi:
    """Return the library's client. Raises UsageError if it is not installed, or for no ``OWNER/NAME``."""
    if not _NAME.fullmatch(repository):
        raise UsageError(
            f"{repository!r} is no repository of the hub",
            why="it has the form OWNER/NAME, where OWNER is your name there or that of an organisation",
            fix="for example: --push my-name/cart-pole, or hf://my-name/cart-pole to load it",
        )
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise UsageError(
            "the hub cannot be reached without the package huggingface_hub",
            why=str(error),
            fix=install_command("hub"),
        ) from error
    return HfApi()


def _told(error: Exception, what: str, repository: str) -> UserError:
    """Return an error of the library for a person, with what to do."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    why = " ".join(described(error).split())[:400]
    fixes = {
        401: "log in with `hf auth login`, or set HF_TOKEN to a token that may write",
        403: "use a token that may write there, or a name of your own: --push OWNER/NAME",
        404: "look whether the name is right, the repository has an export, and your token may read it",
    }
    if status in fixes:
        return UsageError(what, where=repository, why=why, fix=fixes[status])
    fix = "look at the connection and the page of the hub's state, then try again; nothing is lost"
    return StorageError(what, where=repository, why=why, fix=fix)
