"""``python main_ds.py task cluster …`` with stand-ins for learner and actors; without the configuration."""

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from algorithm.app.cli.ds import ClusterOptions, DistributedOptions
from algorithm.app.cli.train import TrainOptions
from algorithm.core.errors import UserError
from ds.cluster.command import train_on_cluster
from ds.cluster.plan import ClusterPlan
from ds.cluster.process import RestartRule


class StandIns(ClusterPlan):
    module = "tests.ds.standin"

    def learner(self, host: str, port: int, *, resume: bool, step: int) -> DistributedOptions:
        train = TrainOptions(env="task", name=self.name, resume=resume)
        return DistributedOptions(role="learner", train=train, learner_host=host, learner_port=port)

    def actor(self, host: str, port: int) -> DistributedOptions:
        train = TrainOptions(env="task")
        return DistributedOptions(role="actor", train=train, learner_host=host, learner_port=port)


def stand_ins(folder: Path, name: str = "one", *, fence: float = 90.0, **flags: Any) -> StandIns:
    """A plan with stand-ins; ``flags`` are the command's."""
    cluster = ClusterOptions(**flags)
    options = DistributedOptions(role="cluster", train=TrainOptions(env="task"), cluster=cluster)
    return StandIns(options=options, label="task", name=name, folder=folder, fence=fence)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", "-n", required=True)
    parser.add_argument("--fence", type=float, default=90.0)
    parser.add_argument("--num_actors", type=int, default=1)
    parser.add_argument("--ray")
    parser.add_argument("--learner_cpus", type=float, default=1.0)
    parser.add_argument("--actor_cpus", type=float, default=1.0)
    given = parser.parse_args()
    try:
        plan = stand_ins(Path.cwd(), **vars(given))
        return train_on_cluster(plan, rule=RestartRule(first=0.2, longest=1.0, budget=4))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
