"""Options of a reset that know whether somebody has looked at them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override


class Noted(dict[str, Any]):
    """Options of a reset that note which names the environment has looked at."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.seen: set[object] = set()

    def _all(self) -> dict[str, Any]:
        plain = {key: dict.__getitem__(self, key) for key in dict.__iter__(self)}
        self.seen.update(plain)
        return plain

    @override
    def __getitem__(self, key: str) -> Any:
        self.seen.add(key)
        return super().__getitem__(key)

    @override
    def __contains__(self, key: object) -> bool:
        self.seen.add(key)
        return super().__contains__(key)

    @override
    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return super().get(key, default)

    @override
    def pop(self, key: str, *default: Any) -> Any:
        self.seen.add(key)
        return super().pop(key, *default)

    @override
    def setdefault(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return super().setdefault(key, default)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    @override
    def keys(self) -> Any:
        return self._all().keys()

    @override
    def values(self) -> Any:
        return self._all().values()

    @override
    def items(self) -> Any:
        return self._all().items()

    @override
    def copy(self) -> dict[str, Any]:
        return self._all()
