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
from algorithm.app.console.output import close_logging, open_console, setup_logging
from algorithm.core.console import Evaluation
from tests.lib.small_disk import files_no_larger_than
from tests.messages.console import Terminal, progress


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


def live(clock=None):
    stream = Terminal()
    return stream, LiveConsole(stream, width=80, clock=clock or Clock())


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
    logging.getLogger("algorithm.run.trainer").info("from a module")
    logging.getLogger("somebody").warning("from a library")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("from Python", stacklevel=1)
    text = (tmp_path / "train.log").read_text()
    for part in ("step=12000", "WARNING algorithm: take care", "again: take care", "from Python"):
        assert part in text
    assert "INFO    algorithm.run.trainer: from a module" in text and "from a library" in text


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


def test_a_line_torn_by_a_kill_is_ended_before_the_log_goes_on(tmp_path):
    (tmp_path / "train.log").write_text("whole\nhal")
    setup_logging(tmp_path / "train.log", debug=False).info("on")
    close_logging()
    text = (tmp_path / "train.log").read_text()
    assert text.startswith("whole\nhal\n2")
    assert text.endswith(": on\n")


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_no_number_is_wider_than_a_column(value):
    assert len(number(value)) <= 8
