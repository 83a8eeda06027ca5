"""What every run imports, imported once."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

import algorithm.train.repeat
import algorithm.train.resume  # noqa: F401
import main  # noqa: F401
import tests.toys
import tests.toys_spaces  # noqa: F401

torch.set_num_threads(1)
