"""``.demo`` files that cannot be used, and what is said of those that were not closed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from algorithm.demos.episode import FaultyRecordingError
from algorithm.extras.mlagents.demo_reading import read_demo
from tests.extras.mlagents.demo_files import file_of, pairs_of
from tests.extras.mlagents.test_demo_faults import FAULTS


def messages() -> Iterator[tuple[str, str]]:
    left = {
        "killed": file_of(pairs_of()[:2], number_steps=0)[:-1],
        "incomplete": file_of(pairs_of()[:2], number_steps=3),
    }
    with TemporaryDirectory() as folder:
        path = Path(folder, "a.demo")
        for name, content in {**{name: fault[0] for name, fault in FAULTS.items()}, **left}.items():
            path.write_bytes(content)
            said: list[str] = []
            try:
                list(read_demo(path, None, said.append))
            except FaultyRecordingError as error:
                said.append(f"{error.where}: {error.why}" if error.where else error.why)
            yield name, "\n".join(said)
