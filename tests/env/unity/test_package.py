from __future__ import annotations

import ast
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from algorithm.env.unity import package

package.load()

ROOT = Path(__file__).resolve().parents[3]


def test_every_message_of_the_package_survives_the_wire():
    from mlagents_envs.communicator_objects.command_pb2 import RESET
    from mlagents_envs.communicator_objects.unity_message_pb2 import UnityMessageProto

    message = UnityMessageProto()
    message.header.status = 200
    message.unity_input.rl_input.command = RESET
    message.unity_input.rl_input.agent_actions["a?team=0"].value.add().discrete_actions.extend([1, 2])
    message.unity_output.rl_output.agentInfos["a?team=0"].value.add(reward=0.5, group_id=3)
    again = UnityMessageProto.FromString(message.SerializeToString())
    assert again == message
    assert again.unity_input.rl_input.agent_actions["a?team=0"].value[0].discrete_actions == [1, 2]


def test_loads_in_a_new_process_with_warnings_as_errors_and_prints_nothing():
    code = (
        "import google.protobuf, numpy, sys\n"
        "from algorithm.env.unity.package import load\n"
        "load()\nload()\n"
        "import mlagents_envs.environment\n"
        "import mlagents_envs.communicator_objects.unity_to_external_pb2_grpc\n"
        "assert 'torch' not in sys.modules\n"
        "assert 'distutils' not in sys.modules\n"
        "mlagents_envs.environment.logger.info('a line that nobody sees')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_its_log_is_part_of_the_program_s(caplog):
    from mlagents_envs import environment

    with caplog.at_level(logging.INFO, logger="algorithm"):
        environment.logger.info("Connected new brain")
    assert [record.name for record in caplog.records] == ["algorithm.env.unity.mlagents_envs.environment"]
    assert environment.logger.handlers == []


def test_nan_passes_the_package():
    from mlagents_envs import rpc_utils

    rpc_utils._raise_on_nan_and_inf(np.array([np.nan]), "observations")


def test_nothing_but_the_unity_package_imports_mlagents_envs():
    for file in [*(ROOT / "algorithm").rglob("*.py"), *(ROOT / "ds").rglob("*.py")]:
        if "env/unity" in file.as_posix():
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith("mlagents_envs") for name in names), file


def test_a_file_of_another_release_is_refused(tmp_path):
    file = tmp_path / "x_pb2.py"
    file.write_text("DESCRIPTOR = _descriptor_pool.Default().AddSerializedFile(b'...')\n")
    with pytest.raises(ImportError, match=r"x_pb2\.py contains no descriptor"):
        package._descriptor(ast.parse(file.read_text()), file)


def test_another_release_is_refused_and_the_right_one_named(tmp_path):
    import mlagents_envs

    other = tmp_path / "mlagents_envs"
    shutil.copytree(Path(mlagents_envs.__file__).parent, other)
    (other / "__init__.py").write_text('__version__ = "1.1.0"\n')
    (other / "communicator_objects" / "command_pb2.py").write_text("DESCRIPTOR = None\n")
    code = (
        "from algorithm.env.unity.package import load\n"
        "from algorithm.core.errors import EnvError\n"
        "for _ in range(2):\n"
        "    try:\n        load()\n"
        "    except EnvError as error:\n        print(error.what, error.why, error.fix, sep='|')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines(keepends=True):
        what, why, fix = line.split("|")
        assert what == "Unity environments need the package mlagents-envs 0.28.0"
        assert why.startswith("1.1.0 is installed, and cannot be imported: ") and "no descriptor" in why
        assert fix == f"{sys.executable} -m pip install mlagents-envs==0.28.0\n"
    assert len(done.stdout.splitlines()) == 2
