"""The page of a population: its lineage line by line, curves of its genes."""

import math

import pytest

from algorithm.app.report.lineage import gene_text
from algorithm.extras.population.page import write_population
from tests.lib.made_runs import make_population, make_run, metrics_text, outcome
from tests.lib.pages import read

pytestmark = pytest.mark.usefixtures("task")


def two_generations(**more):
    return [outcome(generation, member, **more) for generation in (0, 1) for member in (1, 2)]


def page_of(lines, **more):
    return read(write_population(make_population(lines, **more)).read_text())


def evaluated(name, *means):
    return make_run(name, metrics=metrics_text({"eval/return_mean": means}), result=None)


def test_a_page_by_hand():
    # Steps 200 and 400 end the generations; both members have 400 steps by their metrics.
    evaluated("pop_1", -40.0, -30.0, -20.0, -10.0)
    evaluated("pop_2", -60.0, -50.0, -40.0, -30.0)
    lines = two_generations()
    lines[3] |= {"end": "given up", "why": "exit code 4", "score": None}
    page = page_of(lines)
    for text in (
        "task, pop population · not running · seed 3",
        "generations 2 that have ended members 2 1 given up in the last generation",
        "best score -10 pop_1, generation 1 environment steps 800 of all members",
        "mean of 2 members, Student's 95 % interval pop_1, the best of the last generation",
        "Dotted: the end of each generation.",
        "member rank score sac_config.learning_rate origin parents end",
        "pop_1 1, elite -10 0.001 drawn 1 complete",
        "pop_2 2 no score 0.002 drawn 1 given up: exit code 4",
        "python main_ds.py ./task evolver -n pop --num_learners=2 --resume",
        "Evaluate 100 episodes: pop_1, the best of the last generation",
        "python main.py ./task -n pop_1 --eval=100",
        "python main.py ./task --report pop",
    ):
        assert text in page.shown, text
    assert "notice" not in [paragraph.get("class") for paragraph in page.all("p")]
    (label, *_) = [svg["aria-label"] for svg in page.all("svg")]
    assert "mean of 2 members, Student's 95 % interval from -50 to -20" in label
    assert "pop_1, the best of the last generation from -40 to -10" in label


def test_scores_are_best_mean_and_worst():
    lines = [*two_generations(), outcome(1, 3, score=-70.0, rank=3), outcome(1, 4, score=None, rank=4)]
    # Generation 0: -10 and -20. Generation 1: -10, -20 and -70, mean -33.3.
    (label,) = {s["aria-label"] for s in page_of(lines).all("svg") if "Score" in str(s["aria-label"])}
    assert label == (
        "Score by generation: best from -10 to -10, lowest -10, highest -10; mean, Student's 95 % interval "
        "from -15 to -33.3, lowest -33.3, highest -15; worst from -20 to -70, lowest -70, highest -20"
    )


def drifts(values, path="sac_config.x"):
    """Labels of the charts of a gene with these values, a list a generation."""
    lines = [
        outcome(generation, member, genes={path: value})
        for generation, found in enumerate(values)
        for member, value in enumerate(found, start=1)
    ]
    labels = [str(svg["aria-label"]) for svg in page_of(lines).all("svg")]
    return [label.removeprefix(f"{path}: ") for label in labels if label.startswith(path)]


SHARE = "% of members from"


@pytest.mark.parametrize(
    ("values", "label"),
    [
        (
            [[2, 4], [3, 3]],
            "mean ± std from 3 to 3, lowest 3, highest 3; lowest and highest from 2 to 3, lowest 2",
        ),
        # √(10⁻⁴·10⁻²) = 10⁻³; with a zero among them there is no logarithm: 0.005.
        ([[1e-4, 1e-2]], "geometric mean ± std from 0.001 to 0.001, "),
        ([[0.0, 1e-2]], "mean ± std from 0.005 to 0.005, "),
        (
            [[True, False], [True, True]],
            f"false, {SHARE} 50 to 0, lowest 0, highest 50; true, {SHARE} 50 to 100, lowest 50, highest 100",
        ),
    ],
)
def test_a_number_drifts_by_mean_and_ends_and_a_choice_by_its_shares(values, label):
    (found,) = drifts(values)
    assert found.startswith(label)


def test_rare_choices_are_shown_together():
    (label,) = drifts([[[choice] for choice in (*range(9), *range(9), 9, 10)]])
    assert label.count(SHARE) == 10 and f"2 others, {SHARE} 10" in label


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0003, "0.0003"), (1e-5, "1.00e-05"), (12_000, "12,000"), (True, "true"), ([64, 64], "[64, 64]")],
)
def test_a_gene_is_shown_as_a_person_writes_it(value, text):
    assert gene_text(value) == text


def test_lines_that_cannot_be_used_are_named_and_the_rest_is_shown():
    good = two_generations()
    page = page_of(
        [
            good[0],
            '{"generation": 0, "mem',
            outcome(0, 2, score="-5"),
            good[2],
            outcome(1, 0),
            "[]",
            good[3],
            outcome(1, 2, score=-77.0),
            outcome(1, 3, score=math.inf),
        ]
    )
    for text in (
        "lineage.jsonl, line 2 is left out: ",
        "lineage.jsonl, line 3 is left out: score is missing or not what the evolver writes there",
        "lineage.jsonl, line 5 is left out: member is",
        "lineage.jsonl, line 6 is left out: its JSON is",
        "lineage.jsonl, line 8: member 2 appears twice in generation 1; the later line counts",
        "lineage.jsonl, line 9 is left out: Infinity is not a JSON number",
        "pop_1 1, elite -10",
        "pop_2 2 -77",
    ):
        assert text in page.shown, text


def test_a_population_that_has_just_begun_has_a_page():
    for member in (1, 2, 4):  # the last one is of somebody else
        evaluated(f"pop_{member}", -1.0, -2.0, -3.0, -4.0)
    page = page_of([], actors=3)
    for text in (
        "generations 0 that have ended members 2",
        "No generation has a score yet.",
        "--num_learners=2 --num_actors=3 --resume",
    ):
        assert text in page.shown, text
    assert "mean of 2 members" in str(page.all("svg"))


def test_nothing_but_a_lineage_has_a_page():
    folder = make_population([])
    (folder.path / "population.json").unlink()
    page = read(write_population(folder).read_text())
    assert "population.json is missing" in page.shown
    assert "--resume" not in page.shown  # nobody knows how many learners


def test_members_without_a_run_are_named_and_the_others_shown():
    """Also one whose name leads elsewhere."""
    for name in ("pop_2", "other"):
        (evaluated(name, -1.0, -2.0, -3.0, -4.0).path / "report.html").touch()
    page = page_of([outcome(0, 1, name="../task/other"), outcome(0, 2)])
    assert "pop_1: there is no such run" in page.shown
    assert [link["href"] for link in page.all("a")] == ["../pop_2/report.html"]
    assert "-n pop_1" not in page.shown  # the best of the last generation
    assert "environment steps 600" in page.shown  # 200 by the lineage, 400 by the metrics


def test_ends_of_many_generations_are_thinned_out():
    evaluated("pop_1", -1.0, -2.0, -3.0, -4.0)
    text = write_population(make_population([outcome(k, 1) for k in range(120)])).read_text()
    assert "the end of every 3 generations" in read(text).shown
    assert text.count("stroke-dasharray: 0.8") == 40


def test_the_state_is_that_of_the_lock_and_many_problems_are_counted():
    folder = make_population(two_generations())
    folder.lock.write_text('{"pid": 1, "host": "elsewhere", "started": 0.0, "command": "x"}')
    lines = folder.path / "lineage.jsonl"
    lines.write_text(lines.read_text() + "x\n" * 40)
    (folder.path / "population.json").write_text("[")
    shown = read(write_population(folder).read_text()).shown
    assert "still running, " in shown and "population.json cannot be used: " in shown
    assert shown.count("is left out") == 11 and "and 31 problems more" in shown
