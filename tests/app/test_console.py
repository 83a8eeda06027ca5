"""When consoles show something, and what becomes of the output; their texts: ``tests.messages``."""

import io
import logging
import math
import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.app.console.base import LineConsole
from algorithm.app.console.glyphs import number
from algorithm.app.console.live import LiveConsole
from algorithm.app.console.output import RunLog, close_logging, open_console, setup_logging
from algorithm.core.console import Evaluation
from tests.lib.small_disk import files_no_larger_than
from tests.messages.console import progress


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


@pytest.fixture
def logger(tmp_path):
    yield setup_logging(tmp_path / "train.log", debug=False)
    close_logging()


def test_without_a_terminal_a_line_every_ten_seconds():
    clock, shown = Clock(), []
    console = LineConsole(shown.append, shown.append, clock=clock)
    for _ in range(21):
        assert console.due() == (clock.now in (100.0, 110.0, 120.0))
        console.progress(progress(step=int(clock.now)))
        clock.now += 1
    console.evaluation(Evaluation(1, 2.0, math.nan, 1), best=False)
    for step in (5, 5, 6):  # a learner that waits for actors has nothing to tell
        clock.now += 10
        console.progress(progress(step=step))
    steps = ["step=100", "step=110", "step=120", "eval", "step=5", "step=6"]
    assert [line.split()[0] for line in shown] == steps
    found = [" loss/q=" in line for line in shown]
    clock.now += 10
    console.progress(progress(step=7, metrics={"loss/q": 9.0}))
    assert found == [True, *[False] * 5] and " loss/q=9" in shown[-1], "metrics stand where they are new"


def live(width=80, encoding="utf-8", clock=None):
    stream = Terminal()
    stream.encoding = encoding
    return stream, LiveConsole(stream, width=width, clock=clock or Clock())


def plain(stream):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


def test_the_panel_is_drawn_four_times_a_second_and_after_an_evaluation():
    clock = Clock()
    _, console = live(clock=clock)
    with console:
        for pause, due in ((0, True), (0, False), (0.2, False), (0.05, True)):
            clock.now += pause
            assert console.due() == due
            console.progress(progress())
        console.evaluation(Evaluation(1, 2.0, 3.0, 4), best=True)
        assert console.due()


def test_sixty_columns_keep_every_value():
    evaluations = {"last_eval": Evaluation(1_234_000, -12345.6, 1234.5, 10)}
    evaluations["best_eval"] = Evaluation(1_000_000, -11111.1, 200.0, 10)
    metrics = {"loss/q": 1.8e-4, "loss/policy": 0.692, "loss/alpha": 0.0221, "optim/grad_norm": 0.0189}
    metrics |= {"policy/entropy_c": -1.0036, "policy/target_entropy_c": -1.0, "policy/alpha_c": 0.0022}
    steps = {"step": 1_234_567, "max_step": 10_000_000, "updates": 1_233_567, "episodes": 12_345}
    rows = [("success rate", "90% in evaluation, 85% in training"), ("a_callback_with_a_name", "0.25")]
    stream, console = live(width=60)
    with console:
        console.start(
            [("config", [("sac_config.learning_rate_schedule", "cosine (discrete) and more of it")])]
        )
        console.progress(progress(**steps, **evaluations, metrics=metrics, rows=rows, eta_s=250_000.0))
        shown = plain(stream)
    assert max(map(len, shown.splitlines())) <= 60 and "…" not in shown
    for value in (
        *("cosine (discrete)", "1,234,567 / 10,000,000 steps", "69:26:40 left", "12,345 episodes"),
        *("-12,346 ± 1,234 at 1,234,000", "★ -11,111 at 1,000,000", "gradient 0.0189", "temperature 0.0022"),
        *("85% in training", "0.25"),
    ):
        assert value in shown, value


def test_a_panel_shows_what_was_read_since_the_last_row_and_lines_do_not():
    state = progress(metrics={"loss/q": 1.0, "loss/alpha": 3.0}, fresh={"loss/q": 9.0, "loss/policy": 2.0})
    (stream, panel), shown = live(), []
    with panel:
        panel.progress(state)
        assert "q 9.00" in plain(stream) and "policy 2.00" in plain(stream) and "alpha 3.00" in plain(stream)
    LineConsole(shown.append, shown.append).progress(state)
    assert " loss/q=1 " in shown[0] and "loss/policy" not in shown[0]


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


@pytest.mark.parametrize(("doubtful", "colour", "other"), [(False, "32", "33"), (True, "33", "32")])
def test_a_doubtful_result_is_yellow(doubtful, colour, other):
    stream, console = live()
    with console:
        console.finish([("evaluation", "-1")], [], doubtful=doubtful)
    assert f"\x1b[{colour}m" in stream.getvalue() and f"\x1b[{other}m" not in stream.getvalue()


def test_a_dumb_terminal_gets_lines(monkeypatch):
    for term, styled in (("dumb", False), ("xterm", True)):
        monkeypatch.setenv("TERM", term)
        with open_console(output=(stream := Terminal())) as console:
            console.warn("take care")
        assert ("\x1b" in stream.getvalue()) == styled


def test_text_from_outside_steers_no_terminal(monkeypatch):
    evil = "\x1b[2J\x9b2J\x07\u202egpj.\udc9b\r"
    spelt = r"\x1b[2J\x9b2J\x07\u202egpj.\udc9b\r"
    for quiet, term in ((False, "xterm"), (True, "xterm"), (False, "dumb")):
        monkeypatch.setenv("TERM", term)
        with open_console(output=(stream := Terminal()), quiet=quiet) as console:
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
    with open_console(quiet=True, logger=logger, output=io.StringIO()) as console:
        console.start([("run", [("name", "x")])])
        console.progress(progress())
        console.warn("take care")
        console.message("a checkpoint")
        console.finish([], [])
    logger.debug("a detail")
    logging.getLogger("algorithm.run.trainer").info("from a module")
    logging.getLogger("somebody").warning("from a library")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("from Python", stacklevel=1)
    text = (tmp_path / "train.log").read_text()
    for part in ("step=12000", "WARNING algorithm: take care", "again: take care", "from Python"):
        assert part in text
    assert "INFO    algorithm.run.trainer: from a module" in text and "from a library" in text
    setup_logging(tmp_path / "second.log", debug=True).debug("a detail")
    assert "a detail" in (tmp_path / "second.log").read_text()
    assert "a detail" not in (tmp_path / "train.log").read_text()


@pytest.mark.fault("F08")
def test_a_log_on_a_full_disk_is_told_once_and_goes_on(tmp_path, logger):
    path, stream = tmp_path / "train.log", io.StringIO()
    with open_console(output=stream, logger=logger) as console:
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


def test_a_record_that_cannot_be_formatted_ends_nothing(tmp_path, capsys):
    run_log = RunLog(tmp_path / "train.log")
    for arguments in (("text",), (7,)):
        run_log.handle(logging.LogRecord("a", logging.INFO, "b.py", 1, "%d", arguments, None))
    assert "TypeError" in capsys.readouterr().err
    assert (tmp_path / "train.log").read_text() == "7\n"


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_no_number_is_wider_than_a_column(value):
    assert len(number(value)) <= 8
