"""A module that imports a package; its test takes that away."""

import psutil as psutil
