"""``python main_ds.py task cluster …`` with stand-ins for learner and actors; without the configuration."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from algorithm.app.cli.ds import DistributedOptions
from algorithm.app.cli.train import TrainOptions
from algorithm.core.errors import UserError
from ds.cluster.command import scale_cluster, train_on_cluster
from ds.cluster.plan import ClusterPlan
from ds.cluster.process import RestartRule


@dataclass(frozen=True)
class StandIns:
    name: str
    module = "tests.ds.standin"

    def learner(self, host: str, port: int, *, resume: bool, step: int) -> DistributedOptions:
        train = TrainOptions(env="task", name=self.name, resume=resume)
        return DistributedOptions(role="learner", train=train, learner_host=host, learner_port=port)

    def actor(self, host: str, port: int) -> DistributedOptions:
        train = TrainOptions(env="task")
        return DistributedOptions(role="actor", train=train, learner_host=host, learner_port=port)


def write_secrets(folder: Path, hosts: object) -> None:
    for name in ("token", "ca.pem", "learner.pem", "learner.key"):
        (folder / name).write_text(f"{name} of {hosts}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", "-n", required=True)
    parser.add_argument("--fence", type=float, default=90.0)
    parser.add_argument("--num_actors", type=int, default=1)
    parser.add_argument("--scale", type=int)
    parser.add_argument("--ray")
    parser.add_argument("--learner_cpus", type=float, default=1.0)
    parser.add_argument("--actor_cpus", type=float, default=1.0)
    given = parser.parse_args()
    try:
        if given.scale:
            return scale_cluster("task", given.name, given.scale, given.ray)
        plan = ClusterPlan(
            label="task",
            name=given.name,
            folder=Path.cwd(),
            roles=StandIns(given.name),
            actors=given.num_actors,
            learner_cpus=given.learner_cpus,
            actor_cpus=given.actor_cpus,
            secrets=write_secrets,
            fence=given.fence,
        )
        return train_on_cluster(plan, given.ray, rule=RestartRule(first=0.2, longest=1.0, budget=4))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
