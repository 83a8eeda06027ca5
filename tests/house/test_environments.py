"""The page about environments: every command of it works, and its table and its suites agree."""

from __future__ import annotations

import re

import pytest

from main import main
from tests.house.test_docs import ROOT, blocks_of, commands_of

PAGE = ROOT / "docs" / "environments.md"
TEXT = PAGE.read_text("utf-8")
SUITES = re.findall(r"^\| \[([\w ]+)\]\(#", TEXT, re.M)
COMMANDS = [
    words[1:]
    for block in blocks_of(PAGE, TEXT)
    if block.language == "sh"
    for words in commands_of(block.text)
    if words[0] == "asac"
]
TRAININGS = [words for words in COMMANDS if any(word.startswith("--max_step") for word in words)]
SHORT = (
    *("--max_step=40", "--seed=1", "--device=cpu", "--quiet", "-n=a"),
    *("-o", "base_config.max_step_each_iter=20", "-o", "sac_config.start_step=30"),
    *("-o", "replay_config.capacity=1000", "-o", "sac_config.batch_size=4", "-o", "eval_config.episodes=1"),
)


@pytest.mark.parametrize("words", TRAININGS, ids=lambda words: words[0])
def test_a_command_of_the_page_trains(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*words, *SHORT]) == 0, capsys.readouterr().err
    assert list((tmp_path / "models").rglob("result.json"))


def test_a_row_is_a_suite_with_a_section_and_an_extra_that_exists():
    assert re.findall(r"^## (.+)$", TEXT, re.M) == [*SUITES, "Security"]
    extras = (ROOT / "pyproject.toml").read_text("utf-8")
    named = dict(re.findall(r"^\| \[([\w ]+)\]\(#[^|]+\|[^|]+\|[^|]+\| (\S+) \|", TEXT, re.M))
    assert [suite for suite, extra in named.items() if extra == "none"] == ["Gymnasium"]
    for extra in set(named.values()) - {"none"}:
        assert re.search(rf"^{extra.strip('`')} = \[", extras, re.M)
