from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from algorithm.extras.unity import package

package.load()

ROOT = Path(__file__).resolve().parents[3]


def test_loads_in_a_new_process_with_warnings_as_errors_and_prints_nothing():
    code = (
        "import google.protobuf, numpy, sys\n"
        "from algorithm.extras.unity.package import load\n"
        "load()\nload()\n"
        "import mlagents_envs.environment\n"
        "import mlagents_envs.communicator_objects.unity_to_external_pb2_grpc\n"
        "assert 'torch' not in sys.modules\n"
        "assert 'distutils' not in sys.modules\n"
        "mlagents_envs.environment.logger.info('a line that nobody sees')\n"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_another_release_is_refused_and_the_right_one_named(tmp_path):
    import mlagents_envs

    other = tmp_path / "mlagents_envs"
    shutil.copytree(Path(mlagents_envs.__file__).parent, other)
    (other / "__init__.py").write_text('__version__ = "1.1.0"\n')
    (other / "communicator_objects" / "command_pb2.py").write_text("DESCRIPTOR = None\n")
    code = (
        "from algorithm.extras.unity.package import load\n"
        "from algorithm.core.errors import EnvError\n"
        "for _ in range(2):\n"
        "    try:\n        load()\n"
        "    except EnvError as error:\n        print(error.what, error.fix, error.why)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    assert first == second and "need the package mlagents-envs 0.28.0" in first
    assert '[unity]" 1.1.0 is installed' in first and "no descriptor" in first
