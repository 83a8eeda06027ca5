"""What every run imports, imported once."""

# ruff: noqa: F401  # the imports are the purpose
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

import algorithm.app.train
import algorithm.app.training
import main
import tests.lib.toys
import tests.lib.toys_spaces

torch.set_num_threads(1)
