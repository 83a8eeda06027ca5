"""The zip of an export: what is written is read again, and nothing else is."""

from __future__ import annotations

import hashlib
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from algorithm.app.sharing import archive
from algorithm.app.sharing.archive import MANIFEST, ExportManifest, pack, unpack
from algorithm.core.errors import StorageError
from algorithm.runs.checkpoints.manifest import Entry
from tests.sharing.exports import check, members_of, sealed

FILES = {
    "README.md": b"# card\n",
    "config.yaml": b"algorithm: SAC\n",
    "model.safetensors": bytes(range(40)),
    "plots/return.png": b"png",
}


def manifest_of(files: Mapping[str, bytes], **more: object) -> bytes:
    listed = {name: Entry.of(data) for name, data in files.items()}
    keys = {"env": "gym/pendulum", "name": "a", "step": 7, "spaces": {}, **more}
    return ExportManifest(**keys, files=listed).text.encode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.zip"
    path.write_bytes(pack({**FILES, MANIFEST: manifest_of(FILES)}))
    return path


def why(file: Path) -> str:
    with pytest.raises(StorageError) as caught:
        check(file)
    assert caught.value.where == file.name and caught.value.fix
    return caught.value.why


def test_what_is_packed_is_unpacked_again(file):
    manifest, members = unpack(file, "small.zip")
    assert members == FILES
    assert (manifest.env, manifest.name, manifest.step) == ("gym/pendulum", "a", 7)


def test_the_same_members_are_the_same_bytes(file):
    backwards = dict(reversed([*FILES.items(), (MANIFEST, manifest_of(FILES))]))
    assert pack(backwards) == file.read_bytes()
    with zipfile.ZipFile(file) as written:
        infos = written.infolist()
    assert [info.filename for info in infos] == sorted([*FILES, MANIFEST])
    assert {info.date_time for info in infos} == {(1980, 1, 1, 0, 0, 0)}


def test_a_changed_byte_is_found_wherever_it_is(file):
    data = file.read_bytes()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 0x20
        file.write_bytes(changed)
        with pytest.raises(StorageError):
            check(file)


def test_a_file_that_was_cut_short_is_no_export_nor_is_one_with_more_behind_it(file):
    data = file.read_bytes()
    for length in [*range(0, len(data), 13), len(data) - 1]:
        file.write_bytes(data[:length])
        with pytest.raises(StorageError):
            check(file)
    file.write_bytes(data + b"\n")
    assert "changed" in why(file)


@pytest.mark.parametrize("data", [b"", b"no zip at all", b"PK\x03\x04" + bytes(200)], ids=len)
def test_what_is_no_zip_is_told(file, data):
    file.write_bytes(data)
    assert "zip" in why(file)


def test_a_zip_of_another_program_is_told(file):
    with zipfile.ZipFile(file.with_name("other.zip"), "w") as other:
        other.writestr("README.md", "hello")
    assert "no zip of --export" in why(file.with_name("other.zip"))


def test_a_folder_and_a_missing_file_are_told(tmp_path):
    (tmp_path / "a.zip").mkdir()
    with pytest.raises(StorageError, match="cannot be used"):
        check(tmp_path / "a.zip")
    with pytest.raises(StorageError, match="cannot be read"):
        check(tmp_path / "b.zip")


def regular(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.create_system, info.external_attr = 3, mode << 16
    return info


@pytest.mark.parametrize(
    "name",
    [
        "../evil.py",
        "/etc/passwd.py",
        "plots/../../evil.py",
        "..\\evil.py",
        "C:evil.py",
        ".bashrc",
        "plots//a.png",
        "bin/sh",
        "sitecustomize.pth",
        "a/b/model.safetensors",
    ],
)
def test_a_name_that_no_export_has_is_refused(file, name):
    files = {**FILES, name: b"x"}
    file.write_bytes(
        sealed((regular(each), data) for each, data in {**files, MANIFEST: manifest_of(files)}.items())
    )
    assert "is no file of an export" in why(file)


@pytest.mark.parametrize("mode", [stat.S_IFLNK | 0o777, stat.S_IFDIR | 0o755, stat.S_IFIFO | 0o644], ids=oct)
def test_a_link_a_folder_or_a_pipe_is_refused(file, mode):
    members = {**FILES, MANIFEST: manifest_of(FILES)}
    infos = [
        (regular(name, mode) if name == "config.yaml" else regular(name), data)
        for name, data in members.items()
    ]
    file.write_bytes(sealed(infos))
    assert "a link, a folder or a device" in why(file)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_is_refused(file):
    members = [*FILES.items(), (MANIFEST, manifest_of(FILES)), ("config.yaml", b"evil: true\n")]
    file.write_bytes(sealed((regular(name), data) for name, data in members))
    assert "'config.yaml' is in it twice" in why(file)


def test_a_compressed_member_is_refused_before_it_is_unpacked(file):
    bomb = regular("model.safetensors")
    bomb.compress_type = zipfile.ZIP_DEFLATED
    files = {**FILES, "model.safetensors": bytes(10**7)}
    members = {**files, MANIFEST: manifest_of(files)}
    file.write_bytes(
        sealed((bomb if n == "model.safetensors" else regular(n), data) for n, data in members.items())
    )
    assert file.stat().st_size < 20_000
    assert "is compressed" in why(file)


def test_members_that_share_their_bytes_are_refused(file, monkeypatch):
    """Many names for one large member would unpack to many times the size of the file."""
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("it was read"))
    infos = [regular(name) for name in ("README.md", "config.yaml", "model.safetensors")]
    for info in infos:
        info.file_size = info.compress_size = 60
    with pytest.raises(StorageError) as caught:
        archive._check_members(infos, 100, "a.zip")
    assert "more bytes than it has" in caught.value.why


def test_more_than_an_export_may_have_is_neither_written_nor_read(file, monkeypatch):
    monkeypatch.setattr(archive, "LARGEST", 100)
    with pytest.raises(StorageError, match="too large"):
        pack({"model.safetensors": bytes(101)})
    assert "far too many" in why(file)


def _many(file: Path) -> bytes:
    return pack(
        {**FILES, **{f"plots/{i}.png": b"" for i in range(archive.MOST)}, MANIFEST: manifest_of(FILES)}
    )


def _large_manifest(file: Path) -> bytes:
    large = manifest_of(FILES, spaces={f"{i:09}": [] for i in range(20_000)})
    return sealed((regular(name), data) for name, data in {**FILES, MANIFEST: large}.items())


def _directory_of_64_bits(file: Path) -> bytes:
    data = file.read_bytes()[:-64]
    end = data.rindex(b"PK\5\6")
    data = data[:end] + b"PK\6\7" + bytes(16) + data[end:]
    return data + hashlib.sha256(data).hexdigest().encode()


@pytest.mark.parametrize(
    "make, said",
    [
        (_many, "1,005 members or more, 1,000 is the limit"),
        (_large_manifest, "'manifest.json' has 420,718 bytes"),
        (_directory_of_64_bits, "directory is not as"),
    ],
)
def test_what_would_take_long_to_read_is_refused_before_it_is_read(file, monkeypatch, make, said):
    file.write_bytes(make(file))
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("it was read"))
    assert said in why(file)


def test_members_are_exactly_those_of_the_manifest(file):
    listed = manifest_of(FILES)
    without = {name: data for name, data in FILES.items() if name != "plots/return.png"}
    file.write_bytes(pack({**without, MANIFEST: listed}))
    assert "it lacks plots/return.png" in why(file)
    file.write_bytes(pack({**FILES, "nn.py": b"import os\n", MANIFEST: listed}))
    assert "does not name nn.py" in why(file)
    file.write_bytes(pack({**FILES, "config.yaml": b"algorithm: PPO\n", MANIFEST: listed}))
    assert "another SHA-256" in why(file)
    file.write_bytes(pack({**FILES, "config.yaml": b"short\n", MANIFEST: listed}))
    assert "6 bytes, 15 were written" in why(file)
    file.write_bytes(pack(FILES))
    assert "has no manifest.json" in why(file)


@pytest.mark.parametrize("missing", ["config.yaml", "README.md", "model.safetensors"])
def test_what_every_export_has_must_be_there(file, missing):
    files = {name: data for name, data in FILES.items() if name != missing}
    file.write_bytes(pack({**files, MANIFEST: manifest_of(files)}))
    assert missing in why(file)


@pytest.mark.parametrize(
    "old, new, said",
    [
        (b'"format": 1', b'"format": 2', 'it is format 2, written by version "9.9"'),
        (b'"format": 1', b'"format": true', "format is no number"),
        (b'"step": 7', b'"step": -7', "not in the form"),
        (b'"step": 7', b'"step": 7.0', "not in the form"),
        (b'"step": 7', b'"step": 100000000000000000', "not in the form"),
        (b'"env": "gym/pendulum"', b'"env": "a\\u001b[2J"', "is no name"),
        (b'"spaces": {}', b'"spaces": {}, "more": 1', "not in the form"),
        (b'"bytes"', b'"byte"', "KeyError"),
        (b"{", b"[", "JSONDecodeError"),
    ],
)
def test_a_manifest_that_is_none_is_told(file, old, new, said):
    text = manifest_of(FILES, version="9.9")
    assert old in text
    file.write_bytes(pack({**FILES, MANIFEST: text.replace(old, new, 1)}))
    assert said.replace('"', "") in why(file)


def test_the_helpers_of_these_tests_write_what_pack_writes(file):
    members = members_of(file)
    assert sealed((regular(name), members[name]) for name in sorted(members)) == file.read_bytes()
