"""The networks that a task has of its own: by what their file defines once it is imported."""

import sys
from pathlib import Path

import pytest

from algorithm.config.schema import Config
from algorithm.core.errors import ModelError
from algorithm.run.inputs import own_classes

HEAD = "import torch\nfrom torch import nn\nimport algorithm.nn as m\n"


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("class ModelQ(nn.Module): pass", {"ModelQ"}),
        ("from torch.nn import Linear as ModelQ", {"ModelQ"}),
        ("try: from torch.nn import Linear as ModelQ\nexcept ImportError: pass", {"ModelQ"}),
        ("ModelQ = type('Made', (nn.Module,), {})", {"ModelQ"}),
        ("class ModelRep(m.Rep): pass\nclass ModelPolicy(nn.Module): pass", {"ModelRep", "ModelPolicy"}),
        ("from algorithm.nn.models import *", set()),
        ("from algorithm.nn.models.defaults import ModelQ", set()),
        ("class ModelQ(m.ModelQ):\n    def forward(self, *args): pass", set()),
        ("class ModelQ(m.ModelQ):\n    def __init__(self, *args): pass", {"ModelQ"}),
    ],
)
def test_what_is_not_built_as_a_default_is_ones_own(tmp_path: Path, text: str, own: set[str]) -> None:
    (tmp_path / "nn.py").write_text(HEAD + text)
    assert own_classes(Config(), tmp_path) == own


def test_a_file_may_import_what_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_nn.py").write_text(f"{HEAD}class ModelQ(nn.Module): pass")
    (tmp_path / "nn.py").write_text("from beside_nn import ModelQ")
    assert own_classes(Config(), tmp_path) == {"ModelQ"}


def test_a_file_that_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nn.py").write_text("1 / 0")
    with pytest.raises(ModelError, match=r"import of nn\.py"):
        own_classes(Config(), tmp_path)
