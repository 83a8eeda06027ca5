"""What a person sees: lines without a terminal, a panel in one, warnings in any case."""

import io
import itertools
import logging
import math
import re
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.agents.on_policy import metrics as on_policy
from algorithm.agents.sac import metrics as sac
from algorithm.app.console.base import LineConsole, evaluation_line, progress_line
from algorithm.app.console.live import ASCII, UNICODE, LiveConsole, clock_time, number, spark
from algorithm.app.console.output import close_logging, open_console, setup_logging
from algorithm.core.console import Evaluation, Progress
from algorithm.core.errors import StorageError
from algorithm.runs.logs.runlog import RunLog
from tests.runs.small_disk import files_no_larger_than


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def progress(**changes):
    fields = {
        "step": 12_000,
        "max_step": 20_000,
        "iteration": 60,
        "max_iter": None,
        "updates": 11_000,
        "episodes": 60,
        "seconds": 23.44,
        "eta_s": 15.6,
        "env_steps_per_s": 512.25,
        "updates_per_s": 498.0,
        "returns": (-200.0, -100.0),
        "last_eval": Evaluation(12_000, -150.5, 12.0, 10),
        "best_eval": Evaluation(10_000, -140.25, 12.0, 10),
        "metrics": {"loss/q": 0.123456789, "loss/policy": math.nan},
        "readouts": sac.READOUTS,
    }
    return Progress(**{**fields, **changes})


@pytest.fixture
def logger(tmp_path):
    yield setup_logging(tmp_path / "train.log", debug=False)
    close_logging()


def test_the_line_of_progress():
    assert progress_line(progress()) == (
        "step=12000 max_step=20000 iteration=60 updates=11000 episodes=60 seconds=23.4 eta_s=16 "
        "env_steps_per_s=512.25 updates_per_s=498 return=-150 eval=-150.5 eval_best=-140.25 "
        "loss/q=0.123457"
    )


def test_every_word_of_a_line_is_a_key_and_a_value():
    unknown = progress(
        max_step=None, eta_s=None, updates_per_s=math.nan, returns=(), last_eval=None, metrics={}
    )
    for line in (progress_line(progress()), progress_line(unknown)):
        assert all(re.fullmatch(r"[a-z_/0-9]+=-?[0-9.e+-]+", word) for word in line.split(" "))
    assert "updates_per_s" not in progress_line(unknown)


def test_the_line_of_an_evaluation():
    assert evaluation_line(Evaluation(1, 2.0, 3.0, 4, "Ball"), best=False).startswith("eval behaviour=Ball ")
    line = evaluation_line(Evaluation(2000, -1234.56789, 30.0, 10), best=True)
    assert line == "eval step=2000 return_mean=-1234.57 return_ci95=30 episodes=10 best=1"


def test_without_a_terminal_a_line_every_ten_seconds():
    clock, shown = Clock(), []
    console = LineConsole(shown.append, shown.append, clock=clock)
    for _ in range(21):
        assert console.due() == (clock.now in (100.0, 110.0, 120.0))
        console.progress(progress(step=int(clock.now)))
        clock.now += 1
    assert [line.split()[0] for line in shown] == ["step=100", "step=110", "step=120"]
    console.evaluation(Evaluation(1, 2.0, math.nan, 1), best=False)
    assert shown[-1] == "eval step=1 return_mean=2 episodes=1 best=0", "at once"


def test_without_a_terminal_no_line_without_a_step():
    """A learner that waits for actors has nothing to tell."""
    clock, shown = Clock(), []
    console = LineConsole(shown.append, shown.append, clock=clock)
    for step in (0, 0, 5, 5, 6):
        clock.now += 10
        console.progress(progress(step=step))
    assert [line.split()[0] for line in shown] == ["step=5", "step=6"]


def test_without_a_terminal_the_whole_run_is_plain_text():
    stream = io.StringIO()
    with open_console(stream=stream) as console:
        console.start([("run", [("name", "x"), ("seed", "1")]), ("env", [("observations", "obs (3,)")])])
        console.warn("take care")
        console.warn("take care")
        console.message("hello [bold]")
        console.finish([("evaluation", "-1")], [("use it", "python main.py x --run")])
    assert stream.getvalue().splitlines() == [
        "run",
        "  name          x",
        "  seed          1",
        "env",
        "  observations  obs (3,)",
        "warning: take care",
        "warning: take care",
        "hello [bold]",
        "warning: again: take care (2 times)",
        "result",
        "  evaluation  -1",
        "next",
        "  use it      python main.py x --run",
    ]


def test_quiet_shows_warnings_and_the_end():
    stream = Terminal()
    with open_console(quiet=True, stream=stream) as console:
        console.start([("run", [("name", "x")])])
        assert not console.due()
        console.progress(progress())
        console.evaluation(Evaluation(1, 2.0, 3.0, 4), best=True)
        console.message("hello")
        console.warn("take care")
        console.finish([("evaluation", "-1")], [])
    assert stream.getvalue().splitlines() == [
        "warning: take care",
        "result",
        "  evaluation  -1",
    ]


def live(width=80, encoding="utf-8", clock=None):
    stream = Terminal()
    stream.encoding = encoding
    return stream, LiveConsole(stream, width=width, clock=clock or Clock())


def plain(stream):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


@pytest.mark.parametrize("width", [60, 80, 110, 200])
def test_the_panel_fits_and_shows_what_matters(width):
    stream, console = live(width)
    with console:
        console.start([("run", [("name", "x")])])
        console.evaluation(Evaluation(10_000, -140.25, 12.0, 10), best=True)
        console.evaluation(Evaluation(12_000, -150.5, 12.0, 10), best=False)
        policy = {"policy/entropy_c": -0.5, "policy/target_entropy_c": -1.0, "policy/alpha_c": 0.02}
        console.progress(progress(metrics={**policy, "loss/q": 0.25}))
    text = plain(stream)
    last = text.splitlines()[-8:]
    panel = [line for line in last if line[0] in "╭│╰"]
    assert len(panel) == 8
    assert {len(line) for line in panel} == {min(width - len("^C"), 100)}, "what Ctrl-C prints fits behind"
    for part in ("12,000 / 20,000 steps", "512.2 steps/s", "-150.0", "-150.5 ± 12.00 at 12,000", "q 0.2500"):
        assert part in text
    if width >= 80:
        for part in ("60%", "0:15 left", "★ -140.2 at 10,000", "target -1.00", "temperature 0.0200", "█▁"):
            assert part in text


def test_a_hybrid_policy_has_a_line_for_each_part():
    stream, console = live()
    metrics = {"policy/entropy_c": -0.5, "policy/entropy_d": 0.75, "policy/target_entropy_d": 0.6}
    with console:
        console.progress(progress(metrics=metrics))
    text = plain(stream)
    for part in ("continuous", "entropy -0.5000", "discrete", "entropy 0.7500", "target 0.6000"):
        assert part in text


def test_each_family_has_lines_of_its_own():
    stream, console = live(clock=itertools.count().__next__)
    with console:
        console.progress(progress(metrics={}, readouts=on_policy.READOUTS))
        console.progress(progress(metrics={"loss/value": 0.5}, readouts=on_policy.READOUTS))
    empty, known = plain(stream).split("rates")[1:3]
    assert "value –" in empty and "entropy –" in empty, "there is a place for what comes"
    assert "value 0.5000" in known and "explained –" in known and "temperature" not in known


def test_the_best_evaluation_is_marked():
    stream, console = live()
    last = Evaluation(12_000, -150.5, 12.0, 10)
    with console:
        console.progress(progress(last_eval=last, best_eval=last))
    assert "at 12,000 ★ best" in plain(stream)


def test_a_run_that_has_just_begun_shows_what_it_does_not_know():
    stream, console = live()
    begun = progress(
        max_step=None, returns=(), last_eval=None, best_eval=None, metrics={}, updates_per_s=math.nan
    )
    with console:
        console.progress(begun)
    text = plain(stream)
    assert "no episode has ended yet" in text
    assert "– updates/s" in text
    assert "nan" not in text
    assert "left" not in text


def test_the_panel_is_drawn_four_times_a_second_and_after_an_evaluation():
    clock = Clock()
    _, console = live(clock=clock)
    with console:
        assert console.due()
        console.progress(progress())
        assert not console.due()
        clock.now += 0.2
        assert not console.due()
        console.evaluation(Evaluation(1, 2.0, 3.0, 4), best=True)
        assert console.due()
        console.progress(progress())
        clock.now += 0.25
        assert console.due()


def test_a_terminal_without_unicode_gets_ascii():
    stream, console = live(encoding="ascii")
    with console:
        console.evaluation(Evaluation(1, 2.0, 3.0, 4), best=True)
        console.progress(progress())
    text = plain(stream)
    text.encode("ascii")
    assert "-150.5 +- 12.00" in text, "the evaluation"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_gives_the_terminal_back_and_repeats_the_warnings(error):
    stream, console = live()
    with pytest.raises(error), console:
        console.warn("take care")
        console.progress(progress())
        assert "\x1b[?25l" in stream.getvalue(), "the cursor is hidden while the panel is drawn"
        raise error
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")
    assert plain(stream).count("take care") == 2


@pytest.mark.parametrize("between", [
    lambda console: console.progress(progress()),
    lambda console: console.message("a checkpoint"),
    lambda console: console.start([("run", [("name", "x")])]),
    None,
])  # fmt: skip
def test_a_warning_that_still_stands_at_the_end_is_not_repeated(between):
    stream, panel = live()
    shown = []
    for console in (panel, LineConsole(shown.append, shown.append)):
        with console:
            console.warn("take care")
            if between:
                between(console)
    assert plain(stream).count("take care") == " ".join(shown).count("take care") == (2 if between else 1)


@pytest.mark.parametrize("doubtful", [False, True])
def test_commands_are_never_broken_over_lines_and_a_doubtful_result_is_yellow(doubtful):
    stream, console = live(60)
    command = "python main.py gym/pendulum " + "x" * 100
    with console:
        console.finish([("evaluation", "-1 [red]")], [("use it", command)], doubtful=doubtful)
    assert command in plain(stream).splitlines()
    assert ("\x1b[33m" in stream.getvalue(), "\x1b[32m" in stream.getvalue()) == (doubtful, not doubtful)
    assert "-1 [red]" in plain(stream), "text is not markup"


def test_a_dumb_terminal_gets_lines(monkeypatch):
    for term, styled in (("dumb", False), ("xterm", True)):
        monkeypatch.setenv("TERM", term)
        with open_console(stream=(stream := Terminal())) as console:
            console.warn("take care")
        assert ("\x1b" in stream.getvalue()) == styled


def test_text_from_outside_steers_no_terminal(monkeypatch):
    evil = "\x1b[2J\x9b2J\x07\u202egpj.\udc9b\r"
    spelt = r"\x1b[2J\x9b2J\x07\u202egpj.\udc9b\r"
    for quiet, term in ((False, "xterm"), (True, "xterm"), (False, "dumb")):
        monkeypatch.setenv("TERM", term)
        with open_console(stream=(stream := Terminal()), quiet=quiet) as console:
            console.start([("run", [("name", evil)])])
            console.progress(progress(rows=((evil, evil),), metrics={evil: 1.0}))
            console.evaluation(Evaluation(1, 2.0, 3.0, 4, evil), best=False)
            console.message(evil)
            console.command(evil, evil)
            console.warn(evil)
            console.finish([(evil, evil)], [(evil, evil)])
        shown = stream.getvalue()
        assert spelt in shown
        assert not [code for code in ("\x1b[2J", "\x9b", "\x07", "\u202e", "\udc9b") if code in shown]


def test_everything_goes_to_the_log(tmp_path, logger):
    with open_console(quiet=True, logger=logger, stream=io.StringIO()) as console:
        console.start([("run", [("name", "x")])])
        assert console.due()
        console.progress(progress())
        console.warn("take care")
        console.evaluation(Evaluation(2000, -1.0, 30.0, 10), best=True)
        console.finish([], [])
    logger.debug("a detail")
    logging.getLogger("algorithm.train.trainer").info("from a module")
    logging.getLogger("somebody").warning("from a library")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("from Python", stacklevel=1)
    text = (tmp_path / "train.log").read_text()
    for part in ("step=12000", "eval step=2000", "WARNING algorithm: take care", "again: take care"):
        assert part in text
    assert "INFO    algorithm.train.trainer: from a module" in text
    assert "from a library" in text
    assert "from Python" in text
    assert "a detail" not in text


def test_the_log_of_the_next_run_takes_over_and_may_have_details(tmp_path, logger):
    setup_logging(tmp_path / "second.log", debug=True).debug("a detail")
    assert "a detail" in (tmp_path / "second.log").read_text()
    assert "a detail" not in (tmp_path / "train.log").read_text()


def test_a_log_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"absent/train\.log"):
        setup_logging(tmp_path / "absent/train.log", debug=False)


@pytest.mark.fault("F08")
def test_a_log_on_a_full_disk_is_told_once_and_goes_on(tmp_path, logger):
    path, stream = tmp_path / "train.log", io.StringIO()
    with open_console(stream=stream, logger=logger) as console:
        console.message("before")
        with files_no_larger_than(path.stat().st_size + 3):
            console.message("lost")
            console.warn("shown")
            logger.info("lost, too")
        console.message("after")
        said, text = stream.getvalue().splitlines(), path.read_text()
    assert [line.split(" · ")[0] for line in said] == [
        "before", "lost", "warning: the log cannot be written", "warning: shown", "after",
    ]  # fmt: skip
    assert text.splitlines()[-2] == "(lines that could not be written here: 3)"
    assert text.splitlines()[-1].endswith("after")
    assert "lost" not in text


def test_a_log_without_a_console_tells_on_the_standard_error_stream(tmp_path, logger, capsys):
    with files_no_larger_than(0):
        logger.info("lost")
    assert "warning: the log cannot be written" in capsys.readouterr().err


def test_a_line_torn_by_a_kill_is_ended_before_the_log_goes_on(tmp_path):
    (tmp_path / "train.log").write_text("whole\nhal")
    setup_logging(tmp_path / "train.log", debug=False).info("on")
    close_logging()
    text = (tmp_path / "train.log").read_text()
    assert text.startswith("whole\nhal\n2")
    assert text.endswith(": on\n")


def test_output_to_a_full_disk_ends_nothing(tmp_path, logger):
    with Path("/dev/full").open("w") as stream, open_console(stream=stream, logger=logger) as console:
        console.message("one")
        console.message("two")
    text = (tmp_path / "train.log").read_text()
    assert text.count("the output cannot be written any more (No space left on device)") == 1
    assert "two" in text


def test_a_record_that_cannot_be_formatted_ends_nothing(tmp_path, capsys):
    run_log = RunLog(tmp_path / "train.log")
    for arguments in (("text",), (7,)):
        run_log.handle(logging.LogRecord("a", logging.INFO, "b.py", 1, "%d", arguments, None))
    assert "TypeError" in capsys.readouterr().err
    assert (tmp_path / "train.log").read_text() == "7\n"


def test_fraction_is_of_the_limit_that_comes_first():
    assert progress().fraction == pytest.approx(0.6)
    assert progress(max_iter=75).fraction == pytest.approx(0.8)
    assert progress(max_step=None).fraction is None
    assert progress(max_step=6000).fraction == 1.0


def test_sparks_span_their_values():
    assert spark([0.0, 7.0, 3.0], UNICODE.levels) == "▁█▄"
    assert spark([0.0, math.nan, 1.0], ASCII.levels) == "_ #"
    assert spark([5.0, 5.0], UNICODE.levels) == "▁▁"
    assert spark([5.0], UNICODE.levels) == ""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.0000"),
        (0.01234, "0.0123"),
        (1.5, "1.50"),
        (-150.25, "-150.2"),
        (12345.6, "12,346"),
        (1e-5, "1.0e-05"),
        (-2.5e7, "-2.5e+07"),
        (None, "nan"),
        (math.inf, "inf"),
    ],
)
def test_numbers_are_short(value, shown):
    assert number(value) == shown


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_no_number_is_wider_than_a_column(value):
    assert len(number(value)) <= 8


def test_times_read_like_a_clock():
    assert [clock_time(seconds) for seconds in (0, 65.9, 3600, 36_061)] == [
        "0:00",
        "1:05",
        "1:00:00",
        "10:01:01",
    ]


def test_the_panel_tells_of_restarts_where_there_were_any():
    for count, said in ((0, None), (1, "1 restart of environments"), (12, "12 restarts of environments")):
        stream, console = live()
        with console:
            console.progress(progress(env_restarts=count))
        assert (said in plain(stream)) if said else ("restart" not in plain(stream))
