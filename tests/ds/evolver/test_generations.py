"""Files of a population: complete or not there."""

import json
from pathlib import Path

import pytest

from algorithm.core.errors import StorageError
from algorithm.store.checkpoints.manifest import MANIFEST, STATE, Entry, Manifest
from ds.evolver.generations import Generation, MemberStart, PopulationDir
from ds.evolver.population import Member, Origin, Population

RECORD = {"generation": 0, "member": 1, "score": None}
GENES = {"a": 0.1 + 1e-17, "b": 2**70, "c": "é", "d": None, "e": [True, {"f": 1.0}]}


def generation(number: int) -> Generation:
    origin: Origin = "copied" if number else "first"
    return Generation(
        population=Population(number, (Member(1, GENES, origin, (1,), 0, tuple(range(number))),)),
        starts={1: MemberStart(step=100 * number, evaluations=number)},
        lineage=[{**RECORD, "generation": number - 1}] if number else [],
    )


def fill(draft: Path) -> None:
    start = draft / "member_1"
    files = {"model.safetensors": b"networks of " + draft.name.encode(), STATE: b"{}"}
    segment = b"steps"
    (start / "replay").mkdir(parents=True)
    for name, data in {**files, "replay.json": b"{}", "replay/0.seg": segment}.items():
        (start / name).write_bytes(data)
    manifest = Manifest(
        step=100,
        files={name: Entry.of(data) for name, data in files.items()},
        replay=Entry.of(b"{}"),
        segments={"0.seg": Entry.of(segment)},
    )
    (start / MANIFEST).write_text(manifest.text)


@pytest.fixture
def folder(tmp_path: Path) -> PopulationDir:
    made = PopulationDir(tmp_path / "models" / "task" / "pop")
    made.make({"seed": 4})
    made.write(generation(0), lambda draft: None)
    return made


def read(folder: PopulationDir) -> tuple[Generation | None, list[str]]:
    said: list[str] = []
    return PopulationDir(folder.path).newest(said.append), said


def test_what_was_written_is_read(folder: PopulationDir) -> None:
    folder.config.touch()
    assert folder.facts() == {"seed": 4}
    assert read(folder) == (generation(0), [])
    found = read(folder)[0]
    assert found is not None and repr(found.population) == repr(generation(0).population)
    assert folder.networks(0, 1) is None
    folder.write(generation(1), fill)
    assert read(folder) == (generation(1), [])
    networks = folder.networks(1, 1)
    assert networks is not None and (networks / "model.safetensors").exists()
    assert folder.lineage.read_text() == json.dumps({**RECORD, "generation": 0}) + "\n"


def test_networks_of_the_last_two_generations_are_kept(folder: PopulationDir) -> None:
    for number in range(1, 5):
        folder.write(generation(number), fill)
    assert [folder.networks(number, 1) is not None for number in range(5)] == [False] * 3 + [True] * 2
    assert read(folder) == (generation(4), [])
    lines = folder.lineage.read_text().splitlines()
    assert [json.loads(line)["generation"] for line in lines] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("error", "raised"), [(KeyboardInterrupt(), KeyboardInterrupt), (OSError(28, "full"), StorageError)]
)
def test_a_kill_or_a_full_disk_leaves_the_generation_before(
    folder: PopulationDir, error: BaseException, raised: type[BaseException]
) -> None:
    def fails(draft: Path) -> None:
        fill(draft)
        raise error

    with pytest.raises(raised):
        folder.write(generation(1), fails)
    assert read(folder) == (generation(0), [])
    folder.write(generation(1), fill)
    assert read(folder) == (generation(1), [])


@pytest.mark.parametrize("how", ["gone", "torn", "other"])
@pytest.mark.parametrize(
    "name",
    ["generation.json"]
    + [f"member_1/{name}" for name in ("manifest.json", "model.safetensors", "replay.json", "replay/0.seg")],
)
def test_a_damaged_generation_is_passed_over_and_written_again(
    folder: PopulationDir, name: str, how: str
) -> None:
    folder.write(generation(1), fill)
    path = folder.path / "generations" / "generation_0001" / name
    if how == "gone":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] if how == "torn" else b"{ }")
    found, said = read(folder)
    assert found == generation(0)
    assert len(said) == 1 and "continuing with the generation before it" in said[0]
    folder.write(generation(1), fill)
    assert read(folder) == (generation(1), [])
