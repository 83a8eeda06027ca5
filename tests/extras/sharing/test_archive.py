"""The zip of an export: what is written is read again, and nothing else is."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from algorithm.core.errors import StorageError
from algorithm.extras.sharing import archive
from algorithm.extras.sharing.archive import MANIFEST, ExportManifest, pack, unpack
from tests.extras.sharing.exports import zipped

FILES = {
    "result.json": b"{}\n",
    "config.yaml": b"algorithm: SAC\n",
    "model.safetensors": bytes(range(40)),
}


def manifest_of(**more: object) -> bytes:
    keys = {"env": "gym/pendulum", "name": "a", "step": 7, "spaces": {}, **more}
    return ExportManifest(**keys).text.encode()


def whole(files: Mapping[str, bytes], **more: object) -> dict[str, bytes]:
    """The members of an export, its manifest right."""
    return {**files, MANIFEST: manifest_of(**more)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.zip"
    path.write_bytes(pack(whole(FILES)))
    return path


def why(file: Path) -> str:
    with pytest.raises(StorageError) as caught:
        unpack(file, file.name)
    assert caught.value.where == file.name and caught.value.fix
    return caught.value.why


def test_what_is_packed_is_unpacked_again_and_the_same_members_are_the_same_bytes(file):
    manifest, members = unpack(file, "small.zip")
    assert members == FILES
    assert (manifest.env, manifest.name, manifest.step) == ("gym/pendulum", "a", 7)
    assert pack(dict(reversed(whole(FILES).items()))) == file.read_bytes()


def test_a_changed_byte_of_a_member_is_found_wherever_it_is(file):
    data = file.read_bytes()
    for name, content in whole(FILES).items():
        start = data.index(content)
        for place in range(start, start + len(content), 11):
            file.write_bytes(data[:place] + bytes([data[place] ^ 0x20]) + data[place + 1 :])
            assert "content cannot be read" in why(file), name


def test_a_file_that_was_cut_short_is_no_export(file):
    data = file.read_bytes()
    for length in [*range(0, len(data), 13), len(data) - 1]:
        file.write_bytes(data[:length])
        assert "content cannot be read" in why(file)


OUTSIDE = ("../evil.py", "/etc/passwd.py", "plots/../../evil.py")
UNKNOWN = ("plots/a.png", "bin/sh", "sitecustomize.pth", "a/b/model.safetensors")
REFUSED = {
    **{f"'{name}' is not a file": zipped(whole({**FILES, name: b"x"})) for name in OUTSIDE + UNKNOWN},
    "it lacks manifest.json": zipped({"result.json": b"{}"}),
    "config.yaml or model": zipped(whole({"config.yaml": b""})),
    "is compressed": zipped(whole({**FILES, "model.safetensors": bytes(10**6)}), zipfile.ZIP_DEFLATED),
    "its directory has": zipped(whole({**FILES, **{f"{i:0190}.py": b"" for i in range(5000)}})),
    "are not valid names": zipped(whole(FILES, env="a/../b")),
    "its manifest.json is invalid": zipped({**FILES, MANIFEST: b"[]"}),
    "True are not valid names and step": zipped(whole(FILES, step=True)),
    "it is format 1 of version 1.0.0": zipped(
        {**FILES, MANIFEST: manifest_of().replace(b'"format": 2', b'"format": 1')}
    ),
}


@pytest.mark.fault("F26")
@pytest.mark.parametrize("said", REFUSED)
def test_what_no_export_is_is_refused(file, said):
    file.write_bytes(REFUSED[said])
    assert said in why(file)


@pytest.mark.fault("F26")
@pytest.mark.parametrize(("at", "said"), [(0, "cannot be read"), (1, "is not at the stated position")])
def test_what_a_large_zip_says_of_its_directory_is_not_believed(file, at, said):
    data = file.read_bytes()
    place = len(data) - 22
    large = b"PK\6\6" + bytes(36) + (2**40).to_bytes(8, "little") + bytes(8)
    locator = b"PK\6\7" + bytes(4) + (place + at).to_bytes(8, "little") + bytes(4)
    file.write_bytes(data[:place] + large + locator + data[place:])
    assert said in why(file)


def test_more_members_than_a_run_has_are_refused(file):
    with zipfile.ZipFile(file, "a") as forged:
        for k in range(1_000):
            forged.writestr(f"folder{k}/nn.py", b"")
    assert "members" in why(file)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_is_refused(file):
    with zipfile.ZipFile(file, "a") as forged:
        forged.writestr("config.yaml", b"evil: true\n")
    assert "a name is in it twice" in why(file)


def test_members_that_share_their_bytes_are_refused(file, monkeypatch):
    """Many names for one large member would unpack to many times the size of the file."""
    infos = [zipfile.ZipInfo(name) for name in ("result.json", "config.yaml", "model.safetensors")]
    for info in infos:
        info.file_size = info.compress_size = 60
    with pytest.raises(ValueError, match="more bytes than it has"):
        archive._check_members(infos, 100)
