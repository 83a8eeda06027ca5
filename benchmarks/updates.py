"""Gradient updates per second beside Stable-Baselines3. ``README.md`` says what an update is."""

from __future__ import annotations

import sys

from harness import RESULTS, Answer, WorkerError, our_worker, peer_worker, warn_if_busy, write_result
from pairs import pair_arguments, parse, run_pairs
from setting import Setting


def main() -> None:
    """Measure what the command line asks for."""
    parser = pair_arguments(__doc__, result=RESULTS / "updates.json")
    parser.add_argument("--seconds", type=float, default=6.0, help="time measured in one run (default 6)")
    arguments = parse(parser)
    setting = Setting()

    def check(answer: Answer) -> None:
        for name, value in (("parameters", setting.parameters), ("threads", arguments.threads)):
            if answer[name] != value:
                raise WorkerError(f"{answer['library']} reports {name} {answer[name]}, not {value}")

    ours, peer = our_worker("updates_ours.py"), peer_worker("updates_sb3.py", arguments.sb3_python)
    warn_if_busy()
    print(f"updates/s, torch threads: {arguments.threads}")
    try:
        figures = run_pairs(
            ours,
            peer,
            [f"--seconds={arguments.seconds}"],
            pairs=arguments.pairs,
            threads=arguments.threads,
            unit="updates",
            check=check,
        )
    except WorkerError as error:
        sys.exit(f"benchmark stopped: {error}")
    write_result(arguments.json, {**figures, "setting": setting.as_json()})


if __name__ == "__main__":
    main()
