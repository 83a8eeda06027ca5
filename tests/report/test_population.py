"""The page of a population: its lineage line by line, curves of its genes, its family tree."""

import math
import re

import numpy as np
import pytest

from algorithm.app.cli.train import TrainOptions
from algorithm.app.report.compare import report
from algorithm.app.report.lineage import MemberOutcome, family_tree, gene_text, read_lineage
from algorithm.app.report.population import PopulationFacts, write_population
from algorithm.config.locate import find_env
from main import main
from tests.report.made_runs import make_population, make_run, metrics_text, outcome
from tests.report.pages import read

pytestmark = pytest.mark.usefixtures("task")


def outcomes(*lines):
    return [MemberOutcome.model_validate(line) for line in lines]


def two_generations(**more):
    return [outcome(generation, member, **more) for generation in (0, 1) for member in (1, 2)]


def page_of(lines, **more):
    return read(write_population(make_population(lines, **more)).read_text())


def evaluated(name, *means):
    return make_run(name, metrics=metrics_text({"eval/return_mean": means}), result=None)


def corners(path):
    """Ends of each curve of an SVG path."""
    curves = [list(map(float, re.findall(r"[\d.]+", curve))) for curve in path.split("M")[1:]]
    return [(tuple(numbers[:2]), tuple(numbers[-2:])) for numbers in curves]


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


def test_the_mean_is_over_members_and_the_best_stands_out():
    evaluated("pop_1", -40.0, -30.0, -20.0, -10.0)
    evaluated("pop_2", -60.0, -50.0, -40.0, -30.0)
    (label, *_) = [svg["aria-label"] for svg in page_of(two_generations()).all("svg")]
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
    shown = page_of([outcome(0, 1, score=None)], name="other").shown
    assert "No generation has a score yet." in shown
    assert "best score none nobody has a score" in shown


def drifts(values, path="sac_config.x"):
    """Labels of the charts of a gene with these values, a list a generation."""
    lines = [
        outcome(generation, member, genes={path: value})
        for generation, found in enumerate(values)
        for member, value in enumerate(found, start=1)
    ]
    labels = [str(svg["aria-label"]) for svg in page_of(lines).all("svg")]
    return [label.removeprefix(f"{path}: ") for label in labels if label.startswith(path)]


def test_a_number_drifts_by_mean_and_ends():
    assert drifts([[2, 4], [3, 3]]) == [
        "mean ± std from 3 to 3, lowest 3, highest 3; lowest and highest from 2 to 3, lowest 2, highest 3"
    ]


def test_a_number_of_many_sizes_drifts_by_its_logarithm():
    # √(10⁻⁴·10⁻²) = 10⁻³; with a zero among them there is no logarithm: 0.005.
    assert drifts([[1e-4, 1e-2]])[0].startswith("geometric mean ± std from 0.001 to 0.001")


def test_a_number_that_may_be_zero_has_no_logarithm():
    assert drifts([[0.0, 1e-2]])[0].startswith("mean ± std from 0.005 to 0.005")


def test_the_band_is_one_standard_deviation():
    from algorithm.app.report.population import _moments

    ((_, mean, _, (low, high)), *_) = _moments([[2, 4], [3, 3]])
    assert [list(each) for each in (mean, low, high)] == [[3, 3], [2, 3], [4, 3]]
    ((_, mean, _, (low, high)), *_) = _moments([[1e-4, 1e-2]])
    assert np.array([low, mean, high]) == pytest.approx(np.array([[1e-4], [1e-3], [1e-2]]))


def test_choices_drift_by_their_shares():
    assert drifts([[True, False], [True, True]]) == [
        "false, % of members from 50 to 0, lowest 0, highest 50; "
        "true, % of members from 50 to 100, lowest 50, highest 100"
    ]


def test_rare_choices_are_shown_together():
    (label,) = drifts([[[1], [1], [2], [2], [3], [3], [4], [4], [5], [5], [6], [7]]])
    assert label.count("% of members") == 6
    assert "2 others, % of members from 16.7" in label


def test_a_gene_is_shown_as_a_person_writes_it():
    values = [0.0003, 1e-5, 12_000, True, "attn", [64, 64], None]
    assert [gene_text(value) for value in values] == [
        "0.0003", "1.00e-05", "12,000", "true", "attn", "[64, 64]", "null"
    ]  # fmt: skip


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
        "lineage.jsonl, line 8: member 2 stands twice in generation 1; the later line counts",
        "lineage.jsonl, line 9 is left out: Infinity is no number of JSON",
        "pop_1 1, elite -10",
        "pop_2 2 -77",
    ):
        assert text in page.shown, text


def test_many_problems_are_counted():
    shown = page_of(["x"] * 40).shown
    assert shown.count("is left out") == 12
    assert "and 28 problems more" in shown


def test_a_lineage_is_in_order_whatever_the_file_says(task):
    folder = make_population([outcome(1, 2), outcome(0, 1), outcome(1, 1)])
    found, problems = read_lineage(folder.path / "lineage.jsonl")
    assert [(one.generation, one.member) for one in found] == [(0, 1), (1, 1), (1, 2)]
    assert problems == []


def test_a_population_that_has_just_begun_has_a_page():
    evaluated("pop_1", -1.0, -2.0, -3.0, -4.0)
    evaluated("pop_2", -1.0, -2.0, -3.0, -4.0)
    evaluated("pop_4", -1.0, -2.0, -3.0, -4.0)  # of somebody else
    page = page_of([], actors=3)
    for text in (
        "generations 0 that have ended members 2",
        "No generation has a score yet.",
        "--num_learners=2 --num_actors=3 --resume",
    ):
        assert text in page.shown, text
    assert "mean of 2 members" in str(page.all("svg"))
    assert "Family tree" not in page.shown


def test_nothing_but_a_lineage_has_a_page():
    folder = make_population([])
    (folder.path / "population.json").unlink()
    page = read(write_population(folder).read_text())
    assert "No member was evaluated yet." in page.shown
    assert "population.json is missing" in page.shown
    assert "--resume" not in page.shown  # nobody knows how many learners


def test_files_that_cannot_be_read_are_named():
    folder = make_population([])
    (folder.path / "lineage.jsonl").write_bytes(b"\xff\n")
    (folder.path / "population.json").write_text("[")
    shown = read(write_population(folder).read_text()).shown
    assert "lineage.jsonl cannot be used: " in shown
    assert "population.json cannot be used: " in shown


def test_members_without_a_run_are_named_and_the_others_shown():
    run = evaluated("pop_2", -1.0, -2.0, -3.0, -4.0)
    (run.path / "report.html").write_text("")
    page = page_of(two_generations())
    assert "pop_1: there is no such run" in page.shown
    assert [link["href"] for link in page.all("a")] == ["../pop_2/report.html"]
    assert "-n pop_1" not in page.shown  # the best of the last generation
    assert "environment steps 800" in page.shown  # 400 by the lineage, 400 by the metrics


def test_missing_files_of_a_member_are_named():
    make_run("pop_1", metrics=None, result=None)
    assert "pop_1: metrics.jsonl is missing" in page_of(two_generations()).shown


def test_a_name_of_another_folder_leads_nowhere():
    (evaluated("other", 1.0, 1.0, 1.0, 1.0).path / "report.html").write_text("")
    page = page_of([outcome(0, 1, name="../task/other")])
    assert page.all("a") == []
    assert "pop_1: there is no such run" in page.shown


def test_without_genes_only_networks_evolve():
    page = page_of([outcome(0, 1, genes={})])
    assert "Drift of the genes" not in page.shown
    assert "member rank score origin parents end" in page.shown


def test_text_of_a_lineage_is_shown_as_text():
    evil = "<script>alert('&\"')</script>"
    folder = make_population(
        [outcome(0, 1, genes={evil: evil}, name=evil, origin=evil, end=evil, why=evil)],
    )
    text = write_population(folder).read_text()
    assert "<script" not in text
    assert read(text).shown.count(evil) >= 6


def test_ends_of_many_generations_are_thinned_out():
    evaluated("pop_1", -1.0, -2.0, -3.0, -4.0)
    text = write_population(make_population([outcome(k, 1) for k in range(120)])).read_text()
    assert "the end of every 3 generations" in read(text).shown
    assert text.count("stroke-dasharray: 0.8") == 2 * 40  # in the wide drawing and the narrow one


def test_the_state_is_that_of_the_lock():
    folder = make_population(two_generations())
    folder.lock.write_text('{"pid": 1, "host": "elsewhere", "started": 0.0, "command": "x"}')
    assert "still running, " in read(write_population(folder).read_text()).shown


# A tree: columns are 134 pixels apart from 4 on, rows 28 from 26 on; a node has 86 × 20 pixels.
def test_places_in_a_tree():
    tree = family_tree(outcomes(*two_generations()))
    assert [(node.x, node.y, node.number, node.score, node.look) for node in tree.nodes] == [
        (4, 26, "1", "-10", "elite"),
        (4, 54, "2", "-20", "member"),
        (138, 26, "1", "-10", "elite"),
        (138, 54, "2", "-20", "member"),
    ]
    assert (tree.width, tree.height) == (228, 78)
    assert tree.heads == [(4, "generation 0"), (138, "generation 1")]


def test_lines_lead_from_parents_and_those_of_the_best_stand_out():
    tree = family_tree(outcomes(*two_generations()))
    assert corners(tree.ancestors) == [((90, 36), (138, 36))]
    assert corners(tree.others) == [((90, 36), (138, 64))]


def test_ancestors_are_followed_back():
    # 1 of generation 2 comes from 2 of generation 1, and that from 1 of generation 0.
    lines = [*two_generations(), outcome(2, 1, parents=[2])]
    tree = family_tree(outcomes(*lines))
    assert corners(tree.ancestors) == [((90, 36), (138, 64)), ((224, 64), (272, 36))]


def test_the_best_is_that_by_rank():
    lines = two_generations()
    lines[2] |= {"rank": 2}
    lines[3] |= {"rank": 1, "parents": [2]}
    assert corners(family_tree(outcomes(*lines)).ancestors) == [((90, 64), (138, 64))]


def test_children_of_the_same_parents_share_a_junction():
    # Two parents and two children: lines to the middle, (90 + 138) / 2 and (36 + 64) / 2, and from it.
    tree = family_tree(outcomes(*two_generations(parents=[2, 1])))
    assert corners(tree.ancestors) == [
        ((90, 36), (114, 50)),
        ((90, 64), (114, 50)),
        ((114, 50), (138, 36)),
    ]
    assert corners(tree.others) == [((114, 50), (138, 64))]


def test_parents_without_a_line_have_no_curve():
    lines = two_generations()
    del lines[0]
    tree = family_tree(outcomes(*lines))
    assert tree.ancestors == tree.others == ""


def test_members_that_were_given_up_are_marked():
    (node,) = family_tree(outcomes(outcome(0, 1, end="given up", score=None, why="exit code 4"))).nodes
    assert (node.look, node.score) == ("lost", "given up")
    assert node.text.endswith("given up: exit code 4")


def test_a_long_tree_shows_its_end():
    tree = family_tree(outcomes(*(outcome(k, 1) for k in range(130))))
    assert tree.left_out == 30
    assert tree.heads[0] == (4, "generation 30")
    assert len(tree.nodes) == 100
    assert "first 30 generations are left out" in page_of([outcome(k, 1) for k in range(130)]).shown


def test_a_tree_of_nobody_is_an_error():
    with pytest.raises(ValueError, match="no outcomes"):
        family_tree([])


def test_a_large_population_has_a_page_of_bounded_size():
    lines = [outcome(k, member, parents=[1, 2, 3]) for k in range(50) for member in range(1, 17)]
    folder = make_population(lines)
    write_population(folder)
    assert folder.report.stat().st_size < 500_000


def test_the_name_of_a_population_writes_its_page_and_says_where(capsys):
    make_population(two_generations())
    assert report(TrainOptions(env="./task", report=("pop",)), find_env("./task")) == 0
    assert capsys.readouterr().out == "models/task/pop/report.html\n"


def test_members_have_pages_of_their_own_and_are_compared(capsys):
    make_population(two_generations())
    for name in ("pop_1", "pop_2"):
        evaluated(name, -1.0, -2.0, -3.0, -4.0)
    assert main(["./task", "--report", "pop_1"]) == 0
    assert main(["./task", "--report", "pop_*"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "models/task/pop_1/report.html",
        "models/task/compare_pop_1_vs_pop_2.html",
    ]


def test_the_best_of_the_last_generation_comes_first():
    lines = [outcome(0, 1), outcome(1, 1, rank=2), outcome(1, 2, rank=1)]
    facts = PopulationFacts.gather(make_population(lines))
    assert [one.member for one in facts.last] == [2, 1]
    assert facts.best is facts.last[0]


def test_the_best_is_nobody_without_a_score():
    facts = PopulationFacts.gather(make_population([outcome(0, 1, score=None), outcome(0, 2, score=None)]))
    assert facts.best is None
    assert [one.member for one in facts.last] == [1, 2]
