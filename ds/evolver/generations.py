"""Folder of a population: its configuration, and generations that are complete or do not exist.

``models/<env>/<name>/{population.yaml, population.json, lineage.jsonl, generations/generation_0003/…}``. A
generation holds what its members begin with: ``generation.json``, and a checkpoint for each member that gets
networks. It is written into a hidden folder, which then gets its name. A kill on the way leaves a hidden
folder, and the generation before goes on.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from algorithm.core.errors import StorageError, UsageError
from algorithm.core.reading import read_json
from algorithm.core.system.files import rename, sync_folder
from algorithm.store.files import json_text, make_folder, write_durably, write_text
from algorithm.store.names import LINEAGE, POPULATION, is_taken
from ds.evolver.networks import check_start
from ds.evolver.population import Population

_FACTS = "population.json"
_GENERATION = "generation.json"
_DRAFT = ".draft_"
_NAME = re.compile(r"generation_([0-9]{4,9})")
_KEPT = 2
"""Number of generations whose networks are kept: the present one and the one before."""


@dataclass(frozen=True, kw_only=True)
class MemberStart:
    """Progress of a member when a generation begins.

    step:        of its newest checkpoint, -1 without one
    evaluations: of its run so far
    """

    step: int
    evaluations: int


@dataclass(frozen=True, kw_only=True)
class Generation:
    """Start of the members of a generation, networks apart.

    starts:  by member
    lineage: records of the generation before, one for each member
    """

    population: Population
    starts: Mapping[int, MemberStart]
    lineage: Sequence[Mapping[str, Any]]

    @property
    def number(self) -> int:
        """Number of generations before it."""
        return self.population.generation


_JSON = TypeAdapter(Generation)


class PopulationDir:
    """Folder of a population.

    path:    absolute
    config:  the configuration as it was merged, before any draw
    lock:    JSON that names the command that drives the population now
    lineage: one JSON object a line: a member in a generation that has ended
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / POPULATION
        self.lock = path / "run.lock"
        self.lineage = path / LINEAGE
        self._generations = path / "generations"

    def make(self, facts: Mapping[str, object]) -> None:
        """Make the folder of a new population. Raises StorageError. facts: values of its command line."""
        try:
            make_folder(self._generations)
        except OSError as error:
            raise StorageError.of(
                error, what="the population's folder cannot be made", where=self.path
            ) from error
        write_text(self.path / _FACTS, json_text(facts))

    def facts(self) -> dict[str, Any]:
        """Return the facts with which the folder was made.

        Raises UsageError if it is none of a population, StorageError if they cannot be read.
        """
        if not self.config.is_file():
            raise UsageError(
                "there is no such population",
                where=self.path,
                why="it is the folder of a run" if is_taken(self.path) else "there is no such folder",
                fix="give the population's name with -n, without a member's number, or leave --resume out",
            )
        return read_json(self.path / _FACTS)

    def networks(self, generation: int, member: int) -> Path | None:
        """Return the folder of networks that a member begins a generation with; None if there are none."""
        folder = self._generations / _name(generation) / f"member_{member}"
        return folder if folder.is_dir() else None

    def write(self, generation: Generation, fill: Callable[[Path], None]) -> None:
        """Write a generation, and the lineage up to it. Raises StorageError, with nothing changed.

        fill: writes ``member_<number>/…`` durably into the folder it is given
        """
        target = self._generations / _name(generation.number)
        draft = target.with_name(f"{_DRAFT}{target.name}")
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            fill(draft)
            write_durably(draft / _GENERATION, json_text(asdict(generation)).encode())
            for folder in (draft, *(path for path in draft.rglob("*") if path.is_dir())):
                sync_folder(folder)
            if target.exists():  # a damaged one
                shutil.rmtree(target)
            rename(draft, target)
            sync_folder(self._generations)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise StorageError.of(error, what="a generation cannot be written", where=target) from error
        self.write_lineage(generation.number)
        self._drop_networks(generation.number)

    def newest(self, warn: Callable[[str], None]) -> Generation | None:
        """Return the newest intact generation whose networks are kept; None if there is none.

        warn: called for each that is damaged, which is passed over
        """
        for number in sorted(self._numbers(), reverse=True)[:_KEPT]:
            folder = self._generations / _name(number)
            try:
                generation = _JSON.validate_python(read_json(folder / _GENERATION))
                for member in generation.population.members:
                    if member.has_new_networks:
                        check_start(folder / f"member_{member.number}")
            except (StorageError, ValueError) as error:
                warn(f"{folder} is damaged ({error}) · continuing with the generation before it")
            else:
                return generation
        return None

    def write_lineage(self, number: int) -> None:
        """Write the lineage of all generations before ``number``. Raises StorageError."""
        records = []
        for before in sorted(self._numbers()):
            if before <= number:
                records += read_json(self._generations / _name(before) / _GENERATION)["lineage"]
        lines = (json.dumps(record, allow_nan=False, ensure_ascii=False) for record in records)
        write_text(self.lineage, "".join(f"{line}\n" for line in lines))

    def _numbers(self) -> Iterator[int]:
        for folder in self._generations.iterdir() if self._generations.is_dir() else ():
            if match := _NAME.fullmatch(folder.name):
                yield int(match[1])

    def _drop_networks(self, number: int) -> None:
        for before in self._numbers():
            if before <= number - _KEPT:
                for folder in (self._generations / _name(before)).glob("member_*"):
                    with contextlib.suppress(OSError):
                        shutil.rmtree(folder)


def _name(generation: int) -> str:
    return f"generation_{generation:04d}"
