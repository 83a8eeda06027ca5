"""The tables of the documentation: figures of ``results/`` as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean, median
from typing import Any

from benchmarks.cells import Results, commit, pick, short, table
from benchmarks.evidence_tables import evidence, evidence_goal, evidence_pictures
from benchmarks.learner_tables import devices, lanes, lanes_proof, learners, signals

SIDES = {"ours": "this project", "peer": "Stable-Baselines3", "preset": "our preset"}
MEMORIES = {
    "gru": "GRU, 64 units",
    "lstm": "LSTM, 64 units",
    "attn": "attention, 2 layers of 32, 4 heads",
    "gru_long": "GRU, 128 units, as wide networks behind it",
}
ROLLOUTS = {
    "ppo": "CartPole, PPO with the zoo's keys, 8 environments",
    "a2c": "CartPole, A2C, 8 environments",
    "pendulum": "Pendulum, PPO with the defaults of both",
    "cheetah": "HalfCheetahBullet, PPO with the defaults of both",
}
SEGMENTS = {
    "vectors": "500 × 27 floats",
    "images": "100 × 84×84×1 bytes",
    "short": "20 × 4 floats",
    "lanes": "a step of 1,024 agents, 27 floats each",
}


def updates(results: Results) -> str:
    """Every series of pairs, oldest first."""
    rows = [[f"{one['date']}, {commit(one['version'])}", *_pairs(one)] for one in results.series("updates")]
    return table(["measured", "this project", "Stable-Baselines3", "ratio, median of pairs", "pairs"], rows)


def _pairs(found: Mapping[str, Any]) -> list[str]:
    """Medians of either side, and their ratios; nothing of a side that was not there."""
    median, decimals = found["medians"], {"ours": 1, "peer": 1, "ratio": 2}
    cells = [f"{median[side]:.{n}f}" if side in median else "" for side, n in decimals.items()]
    return [*cells, " ".join(f"{row['ratio']:.2f}" for row in found["rates"] if "ratio" in row)]


def steps(results: Results) -> str:
    """Environment steps per second of every task."""
    rows = [[short(task["env_id"]), *_pairs(task)] for task in results["steps"]["tasks"].values()]
    return table(["task", "this project", "Stable-Baselines3", "ratio, median of pairs", "pairs"], rows)


def shares(results: Results) -> str:
    """Milliseconds of a step by activity, and their part of it, for either side of every task."""
    tasks = results["steps"]["tasks"].values()
    parts = list(next(iter(tasks))["shares"]["ours"])
    rows = [
        [
            f"{short(task['env_id'])}, {SIDES[side]}",
            *(
                f"{share.get(part, 0) * 1000 / task['medians'][side]:.2f} ({share.get(part, 0):.0%})"
                for part in parts
            ),
        ]
        for task in tasks
        for side, share in task["shares"].items()
    ]
    return table(["ms a step", *parts], rows)


def memory(results: Results) -> str:
    """Updates per second with every memory, and what they are made of."""
    rows = []
    for name, case in results["memory"]["cases"].items():
        sampling, update = case["ms"]["sampling"], sum(case["ms"].values())
        cells = [str(number) for number in case["window"].values()]
        cells += [f"{case['updates_per_second']:.1f}", f"{update:.1f}", f"{sampling:.1f}"]
        rows.append([MEMORIES[name], *cells, f"{case['parameters']:,}"])
    head = [
        "memory",
        "windows",
        "burn-in",
        "learned",
        "n",
        "updates/s",
        "ms an update",
        "of it for its batch",
    ]
    return table([*head, "trained weights"], rows)


def pixels(results: Results) -> str:
    """Steps per second of either side, and where a step's time goes."""
    found = results["pixels"]["speed"]
    labels = {"ours": "this project, SAC", "peer": "Stable-Baselines3, DQN"}
    rows, parts = [], list(found["shares"]["ours"])
    for side, share in found["shares"].items():
        rate, weights = found["medians"][side], found["answers"][0][side]["parameters"]
        cells = [f"{share.get(part, 0) * 1000 / rate:.2f}" for part in parts]
        rows.append(
            [labels[side], f"{rate:.1f}", *cells, f"{found['peak_rss_mb'][side]:.0f}", f"{weights:,}"]
        )
    head = ["", "steps/s", *(f"{part}, ms a step" for part in parts), "largest memory, MB", "trained weights"]
    *_, ratio, pairs = _pairs(found)
    return f"{table(head, rows)}\n\nRatio of steps/s, median of pairs: {ratio} (pairs: {pairs})."


def replay_time(results: Results) -> str:
    """Microseconds of the replay's operations, one value a run."""
    runs = results["replay"]["microseconds"]
    kinds = list(runs[0])
    rows = [
        [operation, *(", ".join(f"{run[kind][operation]:.0f}" for run in runs) for kind in kinds)]
        for operation in runs[0][kinds[0]]
    ]
    return table(["µs a call", *kinds], rows)


def exports(results: Results) -> str:
    """Seconds and size of an export, and median microseconds of a step: the actor's, onnxruntime's."""
    found, rows = results["exports"]["policies"], []
    sizes = list(next(iter(found.values()))["microseconds"])
    for name, one in found.items():
        steps = [
            ", ".join(f"{median(values):,.0f}" for values in one["microseconds"][size].values())
            for size in sizes
        ]
        more = (one["bytes"] - one["weights"]) / 1024
        rows.append([name, f"{one['seconds']:.1f}", f"{one['weights'] / 1024:,.0f} + {more:.0f}", *steps])
    heads = [f"{size} agent{'s' * (int(size) > 1)}, µs" for size in sizes]
    return table(["policy", "export and check, s", "weights + rest, kB", *heads], rows)


def tuning(results: Results) -> str:
    """Studies: medians over their seeds, and the best values less the section's own on fresh seeds."""
    rows = []
    for side, studies in results["tuning"]["studies"].items():
        found = list(studies.values())
        pruned = [one["states"].count("pruned") for one in found]
        better = [
            fmean(ours) - fmean(theirs)
            for one in found
            if one["final"]
            for ours, theirs in [(one["final"]["tuned"], one["final"]["default"])]
        ]
        rows.append(
            [
                side,
                ", ".join(f"{one['best']:.0f}" for one in found),
                ", ".join(f"{value:+.0f}" for value in better),
                f"{median(one['steps'] for one in found):,.0f}",
                f"{median(pruned):.0f}",
                f"{median(one['cpu_seconds'] for one in found) / 60:.1f}",
                f"{median(one['own_cpu_seconds'] / one['cpu_seconds'] for one in found):.1%}",
            ]
        )
    heads = ["best trial", "better by, fresh seeds", "steps", "pruned", "CPU minutes", "own share"]
    return table(["study", *heads], rows)


def scaling(results: Results) -> str:
    """Median costs by size, a row for each way."""
    rows = [
        [title, way, ", ".join(f"{size}: {median(values):.3g}" for size, values in found.items())]
        for title, ways in results["scaling"]["costs"].items()
        for way, found in ways.items()
    ]
    return table(["cost", "", "size: median"], rows)


def engines(results: Results) -> str:
    """Milliseconds and rate of an update by side, and how much faster than each peer the side is."""
    found = results["engines"]["milliseconds"]
    peers = [side for side in found if side.startswith(("Stable", "sbx"))]
    rows = []
    for side, ms in found.items():
        ratios = [median(theirs / own for theirs, own in zip(found[peer], ms, strict=True)) for peer in peers]
        cells = [f"{median(ms):.2f}", f"{1e3 / median(ms):.0f}", *(f"{ratio:.2f}" for ratio in ratios)]
        rows.append([side, *cells])
    return table(["", "ms an update", "updates/s", *(f"of {peer}" for peer in peers)], rows)


def workers(results: Results) -> str:
    """Environment steps per second for every number of copies and arrangement."""
    figures = results["workers"]
    speed, learned = figures["speed"], figures["identity"]
    found = dict.fromkeys(name for row in speed for name in row["medians"])
    names = sorted(found, key=lambda name: not name.startswith("workers"))  # the peers come last
    titles = {"workers 0": "in process", "sync": "Gymnasium Sync", "async": "Gymnasium Async"}
    rows = [
        [str(row["copies"]), *(f"{row['medians'][n]:.0f}" if n in row["medians"] else "" for n in names)]
        for row in speed
    ]
    head = ["copies", *(titles.get(name, name.replace("workers ", "workers: ")) for name in names)]
    told = "the same, bit for bit" if learned["same"] else "NOT the same"
    numbers, digest = ", ".join(learned["sha256"]), next(iter(learned["sha256"].values()))[:16]
    told = f"With {numbers} workers the networks after {learned['steps']:,} steps are {told} (`{digest}…`)."
    return f"{table(head, rows)}\n\n{told}"


def checkpoints(results: Results) -> str:
    """Every case: what is stored, what each operation takes, and the memory it needs beside."""
    found = results["checkpoints"]
    later = f"save {found['setting']['further']:,} steps later, MB"
    head = ["transitions", "carry", "replay, MB", "first save, MB", "s", later, "s", "verify and load, s"]
    rows = []
    for case in found["cases"]:
        cells = [f"{case['transitions']:,}", "64" if case["memory"] == "RNN" else "none"]
        cells.append(f"{case['replay_mb']:.0f}")
        for name in ("first", "next"):
            cells += [f"{case['bytes'][name] / 1e6:.1f}", f"{case['seconds'][name]:.2f}"]
        rows.append([*cells, f"{case['seconds']['load']:.2f}", f"{max(case['peak_mb'].values()):.0f}"])
    return table([*head, "most memory beside the replay, MB"], rows)


def rollouts(results: Results) -> str:
    """Environment steps per second of every case."""
    rows = [[ROLLOUTS[case], *_pairs(found)] for case, found in results["rollouts"]["cases"].items()]
    return table(["training", "this project", "Stable-Baselines3", "ratio, median of pairs", "pairs"], rows)


def inbox_receive(results: Results) -> str:
    """Segments a second for every case, with the fewest and with the most actors."""
    rows = []
    for case in results["inbox"]["receive"]:
        name = SEGMENTS[case["case"]] + (", TLS and token" if case["secure"] else "")
        for row in (case["rows"][0], case["rows"][-1]):
            speed = pick(row, "actors:d", "parcels_per_second:.0f", "mb_per_second:.1f")
            cpu = f"{sum(row['cpu_us'].values()):.0f}"
            rows.append([name, f"{case['bytes'] / 1000:.1f}", *speed, cpu, f"{row['server_share']:.0%}"])
    head = ["segment", "kB", "actors", "segments/s", "MB/s", "CPU-µs a segment", "server's thread is busy"]
    return table(head, rows)


def inbox_weights(results: Results) -> str:
    """How long weights take to reach everybody."""
    rows = []
    for size, row in results["inbox"]["weights"].items():
        cells = pick(row, "actors:d", "seconds:.2f", "mb_per_second:.0f")
        rows.append([size, *cells, *pick(row["updates_per_second"], "alone:.1f", "meanwhile:.1f")])
    head = ["weights", "actors", "s until all have them", "MB/s", "updates/s before", "updates/s meanwhile"]
    return table(head, rows)


def bare(results: Results) -> str:
    """Every task and side: the last evaluations, as mean and for each seed; the mean height; the seconds.

    The mean height is that of all evaluations of a run, as in :func:`learning`.
    """
    found = results["bare"]
    order = {"before": 0, "after": 1, "sb3": 3}
    sides = sorted({row["side"] for row in found["runs"]}, key=lambda side: (order.get(side, 2), side))
    rows = []
    for name, task in found["tasks"].items():
        cells, heights, seconds = [], [], []
        for side in sides:
            runs = [row for row in found["runs"] if (row["task"], row["side"]) == (name, side)]
            curves = [[mean for _, mean in row["curve"]] for row in runs if not row["error"]]
            cells.append(_finals([curve[-1] for curve in curves]) if curves else "failed" if runs else "–")
            heights.append(f"{fmean(map(fmean, curves)):.4g}" if curves else "–")
            seconds.append(f"{fmean(row['seconds'] for row in runs):.0f}" if curves else "–")
        both = " / ".join(heights), " / ".join(seconds)
        rows.append([f"`{name}`", f"{task['steps']:,}", f"{task['random']:.4g}", *cells, *both])
    names = ["Stable-Baselines3" if side == "sb3" else side for side in sides]
    each = " / ".join(names)
    return table(["task", "steps", "random policy", *names, f"mean height: {each}", f"seconds: {each}"], rows)


def _finals(finals: list[float]) -> str:
    return f"**{fmean(finals):.4g}** ({', '.join(f'{value:.4g}' for value in finals)})"


TABLES: dict[str, Callable[[Results], str]] = {
    "updates": updates,
    "steps": steps,
    "steps-shares": shares,
    "memory": memory,
    "pixels": pixels,
    "replay": replay_time,
    "workers": workers,
    "lanes": lanes,
    "lanes-proof": lanes_proof,
    "checkpoints": checkpoints,
    "rollouts": rollouts,
    "learners": learners,
    "signals": signals,
    "devices": devices,
    "exports": exports,
    "tuning": tuning,
    "engines": engines,
    "scaling": scaling,
    "inbox-receive": inbox_receive,
    "inbox-weights": inbox_weights,
    "bare": bare,
    "evidence": evidence,
    "evidence-goal": evidence_goal,
    "evidence-pictures": evidence_pictures,
}
"""Tables of the pages; a name begins with that of its question."""
