"""Upload and download of exports on the Hugging Face hub, by its library, which is imported when needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from algorithm.app.cli.flag_types import HUB
from algorithm.core.errors import StorageError, UsageError, described
from algorithm.core.extras import needs

if TYPE_CHECKING:
    from huggingface_hub import HfApi

FILE = "run.zip"
"""Name of the export in its repository; its members are beside it, so that the hub shows them."""

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FIXES = {
    401: "log in with `hf auth login`, or set HF_TOKEN to a token that may write",
    403: "use a token that may write there, or a name under your own account, OWNER/NAME",
    404: "check that the name is right, the repository has an export, and your token may read it",
}
"""Status of an answer → what to do."""


def push(repository: str, files: Mapping[str, bytes], *, private: bool = False) -> str:
    """Upload files in one commit to a repository of models, made if missing; return its address.

    repository: ``OWNER/NAME``
    files:      name -> bytes
    Raises UsageError if the hub refuses it, StorageError for other failures.
    """
    api = hub_api(repository)
    from huggingface_hub import CommitOperationAdd

    operations = [CommitOperationAdd(name, data) for name, data in sorted(files.items())]
    with _explained("the export cannot be uploaded", repository):
        address = api.create_repo(repository, private=private or None, exist_ok=True)
        api.create_commit(repository, operations, commit_message="Share a run")
    return str(address)


def fetch(source: str) -> Path:
    """Download an export from the hub; return its path in the library's cache. Raises as :func:`push`."""
    repository, _, revision = source.removeprefix(HUB).partition("@")
    api = hub_api(repository)
    with _explained("the export cannot be downloaded", repository):
        return Path(api.hf_hub_download(repository, FILE, revision=revision or None))


def hub_api(repository: str) -> HfApi:
    """Return the library's client. Raises UsageError if it is not installed, or for no ``OWNER/NAME``."""
    if not _NAME.fullmatch(repository):
        raise UsageError(
            f"{repository!r} is not a repository of the hub",
            why="it has the form OWNER/NAME, where OWNER is your name there or that of an organisation",
            fix="for example: my-name/cart-pole, or hf://my-name/cart-pole to load it",
        )
    with needs("hub", "the hub", where=repository):
        from huggingface_hub import HfApi
    return HfApi()


@contextmanager
def _explained(what: str, repository: str) -> Iterator[None]:
    """Turn an error of the library into UsageError if the hub refused the request, else StorageError."""
    try:
        yield
    except Exception as error:
        why = " ".join(described(error).split())[:400]
        if fix := _FIXES.get(getattr(getattr(error, "response", None), "status_code", 0)):
            raise UsageError(what, where=repository, why=why, fix=fix) from error
        fix = "check the connection and the hub's status page, then try again; nothing is lost"
        raise StorageError(what, where=repository, why=why, fix=fix) from error
