"""Command line of the scripted player, with the flags that the trainer passes to a build."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from algorithm.extras.unity.testing.academy import Academy, OtherVersionError, QuitCommandError, idle
from algorithm.extras.unity.testing.connection import Connection, TrainerGoneError
from algorithm.extras.unity.testing.faults import KINDS, PLACES, FaultPlan, PlannedFault, QuitError
from algorithm.extras.unity.testing.ledger import PlayerLedger
from algorithm.extras.unity.testing.scenes import TASKS

EDITOR_PORT = 5004


def parse(words: list[str]) -> argparse.Namespace:
    """Return the options of a command line; unknown flags of Unity are ignored."""
    program = "python -m algorithm.extras.unity.testing"
    parser = argparse.ArgumentParser(program, description=__doc__, allow_abbrev=False)
    unity = parser.add_argument_group("given by the trainer")
    unity.add_argument("--mlagents-port", type=int, default=EDITOR_PORT, help="default: the editor's, 5004")
    unity.add_argument("-nographics", action="store_true")
    unity.add_argument("-batchmode", action="store_true")
    unity.add_argument("-logFile", type=Path, help="receives all output")
    unity.add_argument("--scene", help="noted in the ledger; a name of a task overrides --task")
    task = parser.add_argument_group("the task")
    task.add_argument("--task", choices=sorted(TASKS), default="continuous")
    task.add_argument("--agents", type=int, default=1, help="of each behaviour in each area")
    task.add_argument("--period", type=int, default=1, help="steps between decisions")
    task.add_argument("--offsets", action="store_true", help="agents decide in different steps")
    task.add_argument("--max-step", type=int, default=0, help="steps of an episode, 0 for no limit")
    task.add_argument("--ledger", type=Path, help="folder for a record of each process")
    task.add_argument("--respawn", action="store_true", help="echo: a new object for every episode")
    task.add_argument("--destroy", type=float, default=0, help="echo: chance of an object's end in each step")
    faults = parser.add_argument_group("behaviour as a process")
    faults.add_argument("--wait", type=float, default=10, help="seconds to wait for the trainer")
    faults.add_argument("--api", default="1.5.0", help="version of the protocol")
    faults.add_argument("--package", default="2.3.0", help="version of the C# package")
    faults.add_argument("--stubborn", action="store_true", help="ignore SIGTERM, SIGINT and the goodbye")
    faults.add_argument(
        "--fault",
        action="append",
        default=[],
        type=PlannedFault.parse,
        metavar="KIND@PLACE[#START]",
        help=f"place: {PLACES}; kind: " + "; ".join(f"{kind}: {what}" for kind, what in KINDS.items()),
    )
    faults.add_argument("--starts", type=Path, help="file that counts starts, for #START")
    options, _ = parser.parse_known_args(words)
    if options.scene in TASKS:
        options.task = options.scene
    return options


def main(words: list[str]) -> int:
    """Run the player until the trainer or a planned end stops it; return 0.

    words: arguments of the command line
    If it never connects, the protocol has another version, or it is stubborn and loses the trainer, it waits
    for its parent's end. A planned crash ends the process with another exit code.
    """
    options = parse(words)
    if options.logFile is not None:
        log = os.open(options.logFile, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        sys.stdout.flush()
        os.dup2(log, 1)
        os.dup2(log, 2)
    print("arguments:", *words, flush=True)
    if options.stubborn:
        for number in {signal.SIGTERM, signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGINT)}:
            signal.signal(number, signal.SIG_IGN)
    faults = FaultPlan(options.fault, options.starts)
    connection = None
    try:
        faults.reach("start")
        connection = Connection(options.mlagents_port, wait=options.wait)
        ledger = PlayerLedger(options.ledger, options.mlagents_port) if options.ledger else None
        Academy(options, faults, ledger).run(connection, TASKS[options.task])
    except QuitError:
        if connection is not None:
            connection.say_goodbye()
    except (TrainerGoneError, QuitCommandError) as end:
        print(f"The trainer is gone: {end}", flush=True)
        if connection is None:
            print("Couldn't connect to trainer. Will perform inference instead.", flush=True)
        if connection is None or options.stubborn:
            idle()
    except OtherVersionError as other:
        print(f"Communication versions differ: {other}. Will perform inference instead.", flush=True)
        idle()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
