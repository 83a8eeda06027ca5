"""The image and the services: what they copy is there, and what they start exists."""

import json
import re

import pytest
import yaml

from algorithm.app.cli.ds import parse_distributed


@pytest.fixture
def services(root):
    return yaml.safe_load((root / "compose.yaml").read_text())["services"]


def test_all_that_is_copied_is_there_and_not_ignored(root):
    text = (root / "Dockerfile").read_text()
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.+)$", text, re.M)]
    names = {name for words in copied for name in words}
    lines = (root / ".dockerignore").read_text().split()
    assert lines[lines.index("*") :] and names <= {line[1:] for line in lines if line.startswith("!")}
    assert all((root / name).exists() for name in names)
    assert {"algorithm", "asac", "ds", "envs", "pyproject.toml", "README.md"} <= names, (
        "the package is built of these"
    )


def test_what_the_image_installs_and_starts_exists(root):
    text, project = (root / "Dockerfile").read_text(), (root / "pyproject.toml").read_text()
    (extras,) = re.findall(r"^ARG EXTRAS=(.+)$", text, re.M)
    assert all(re.search(rf"^{name} = \[", project, re.M) for name in extras.split(","))
    (version,) = re.findall(r"^ARG PYTHON=(.+)$", text, re.M)
    assert re.search("^torch==", (root / f"constraints/python{version}.txt").read_text(), re.M)
    scripts = dict(re.findall(r'^(asac[-\w]*) = "(.+)"$', project, re.M))
    assert json.loads(re.findall(r"^ENTRYPOINT (.+)$", text, re.M)[0])[0] in scripts


def test_what_is_kept_lies_below_data_where_the_program_writes_it(root, services):
    text = (root / "Dockerfile").read_text()
    assert re.findall(r"^WORKDIR (.+)$", text, re.M)[-1] == "/data"
    (kept,) = re.findall(r"^VOLUME (.+)$", text, re.M)
    mounted = {words.partition(":")[2] for service in services.values() for words in service["volumes"]}
    assert set(json.loads(kept)) < mounted == {"/data/models", "/data/.secrets"}
    assert all(f" {path}" in text for path in mounted), "made in the image, so that they are the user's own"


def test_the_services_are_commands(services):
    assert services["actor"]["deploy"]["replicas"] == 2
    for name in ("learner", "actor"):
        assert services[name]["entrypoint"] == ["asac-ds"]
        options = parse_distributed(services[name]["command"])
        assert options.role == name and options.learner_host == "learner"
        assert "learner" in services["certificates"]["entrypoint"][2].split()
