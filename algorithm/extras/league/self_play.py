"""The beginning of self-play: opponents of a training and of its evaluations."""

from __future__ import annotations

from collections.abc import Mapping

from algorithm.agents.base import Agent
from algorithm.agents.registry import family
from algorithm.agents.roles import Acting, ActingInputs
from algorithm.core.errors import UsageError
from algorithm.core.seeding import stream, stream_seed
from algorithm.core.spec import AgentSpec
from algorithm.core.system.memory import free_memory
from algorithm.core.wording import format_bytes
from algorithm.extras.league.anchors import Anchors
from algorithm.extras.league.season import Season, weights_of
from algorithm.extras.league.teams import SelfPlayEnv
from algorithm.run.evaluation.evaluate import Evaluator
from algorithm.run.inputs import nn_file
from algorithm.run.runtime import LocalRuntime, Runtime
from algorithm.run.training_context import TrainingContext


def begin_self_play(
    context: TrainingContext, agents: Mapping[str, Agent], source: Runtime, evaluator: Evaluator | None
) -> None:
    """Let past policies act for the other teams in training, and fixed ones in evaluations.

    Raises UsageError for several processes, families without actors, and too many past policies.
    """
    if not isinstance(source, LocalRuntime):
        raise UsageError(
            "self-play needs the environments in this process",
            where="self_play.window",
            why="past policies act in them, and actors or worker processes step them, or nobody does",
            fix="train without actors, offline training and num_processes, or set self_play.window: 0",
        )
    config, specs, seed = context.loaded.config.self_play, source.env.specs, context.loaded.seed
    _refuse_large(agents, config.window)
    season = Season(config, agents, _acting(context, agents, specs, "opponents"), stream(seed, "self-play"))
    source.vec_env = SelfPlayEnv(source.vec_env, season)
    if evaluator is not None:
        acting = _acting(context, agents, specs, "anchors")
        anchors = Anchors(season, acting, specs, stream_seed(seed, "anchors", "random"))
        evaluator.env = SelfPlayEnv(evaluator.env, anchors)


def _acting(
    context: TrainingContext, agents: Mapping[str, Agent], specs: Mapping[str, AgentSpec], purpose: str
) -> dict[str, Acting]:
    """Return a policy for the opponents of each behaviour. purpose: name for its random numbers."""
    acting = {}
    for name, agent in agents.items():
        config = context.loaded.for_behaviour(name)
        make_acting = family(config).make_acting
        if make_acting is None:
            raise UsageError(
                f"{config.algorithm} has no self-play",
                where="algorithm, self_play.window",
                why="its policies cannot act apart from its learner",
                fix="use another algorithm, or set self_play.window: 0",
            )
        inputs = ActingInputs(
            specs[name],
            config,
            nn_file=nn_file(config, context.networks),
            behaviour=name,
            seed=context.loaded.seed,
            own_seed=stream_seed(context.loaded.seed, purpose) >> 32,
            device=agent.learner.device,
        )
        acting[name] = make_acting(inputs)
        acting[name].policy.warming_up = False
    return acting


def _refuse_large(agents: Mapping[str, Agent], window: int) -> None:
    """Raise UsageError if ``window`` past policies of each behaviour exceed half of the free memory."""
    copies = [weights_of(agent.acting_parts()) for agent in agents.values()]
    needed = sum(value.nbytes for weights in copies for value in weights.values())
    most = free_memory() // 2 // needed
    if window > most:
        raise UsageError(
            f"{window:,} past policies need {format_bytes(window * needed)}",
            where="self_play.window",
            why=f"half of the free memory holds {most:,}",
            fix=f"set self_play.window to {most:,} or less, or use smaller networks",
        )
