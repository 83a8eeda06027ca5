"""The documentation site: it is built strictly, has every page, every name of the package and every flag."""

import os
import re
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

import asac
from algorithm.app.cli.ds import distributed_parser
from algorithm.app.cli.parsing import train_parser
from algorithm.config.schema import fields
from algorithm.store.logs.registry import METRICS

KEY = re.compile(
    r"`([a-z0-9]+_config(?:\.\w+)+|reward_signals(?:\.\w+)+|demonstrations\.\w+|behavioral_cloning\.\w+)"
)


@pytest.fixture(scope="module")
def site(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        words, cwd=root, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_every_page_name_and_flag(site, root):
    nav = (root / "mkdocs.yml").read_text().partition("\nnav:")[2]
    named = set(re.findall(r"([\w/]+\.md)$", nav, re.M))
    assert {page.name for page in (root / "docs").glob("*.md")} <= named
    home = (site / "index.html").read_text()
    studies = [page.stem for page in (root / "benchmarks" / "studies").glob("*.md")]
    assert [study for study in studies if f'href="benchmarks/studies/{study}.html"' not in home] == []
    reference = (site / "api.html").read_text()
    for name in set(asac.__all__) - {"__version__"}:
        assert f'id="{name.lower()}"' in reference, name
    flags = (site / "command_line.html").read_text()
    for parser in (train_parser(), distributed_parser()):
        for action in parser._actions:
            assert all(f"<code>{word}</code>" in flags for word in action.option_strings)
    tasks = (site / "tasks.html").read_text()
    assert 'href="envs/gym/pendulum/index.html"' in tasks, "links out of docs/ lead to a page of the site"
    assert (site / "search/search_index.js").is_file(), "search works without a server"
    assert 'src="javascripts/iframe-worker.js"' in flags
    assert 'class="md-footer__link md-footer__link--next"' in flags
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.search(r'(?:src|@import|url\()["\' ]*https?://', text), f"{page} fetches something"


def test_keys_beside_those_of_other_libraries_exist(root):
    known = {".".join(path) for path, _ in fields()}
    blocks = {name.rpartition(".")[0] for name in known} | {
        "nn_config.q",
        "nn_config.policy",
        "nn_config.rep",
    }
    text = (root / "docs" / "coming_from.md").read_text()
    ours = {
        key
        for line in text.splitlines()
        if line.startswith("|")
        for key in KEY.findall(line.split("|", 2)[2])
    }
    assert len(ours) > 60
    assert ours - known - blocks == set()
    table = text.partition("| TensorBoard there | here |")[2].partition("\n\n")[0]
    names = set(re.findall(r"`([a-z]\w*/\w+)`", table))
    assert names - set(METRICS) == set() and len(names) >= 30


@pytest.mark.slow
def test_the_notebook_runs_with_a_panel_in_it(root, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # of the suite: it shows no picture in a cell
    notebook = nbformat.read(root / "docs" / "notebook.ipynb", 4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("3_000", "1_100")
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=100, resources=where, kernel_name="python3").execute()
    outputs = [cell.get("outputs", []) for cell in notebook.cells if cell.cell_type == "code"]
    assert [len(each) for each in outputs] == [1] * len(outputs), "a panel is drawn anew in place"
    assert "<table>" in outputs[1][0]["data"]["text/html"]
    panel = outputs[0][0]["data"]
    assert "1,100 / 1,100 steps" in panel["text/plain"] and "<span" in panel["text/html"]
    assert "run.resume(max_step=2200)" in panel["text/plain"] and "--resume" not in panel["text/plain"]
    assert "1210, " in outputs[-2][-1]["data"]["text/plain"]
    assert "'is_success'" in outputs[-1][-1]["data"]["text/plain"], "a class in a cell has trained"
