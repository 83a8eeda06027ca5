"""Parts of a user's own: modules that are trained with, and what can be wrong with one."""

import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

import asac
from algorithm.agents.off_policy.acting import make_acting
from algorithm.agents.roles import ActingInputs
from algorithm.agents.sac.config import SacConfig
from algorithm.agents.sac.family import SAC
from algorithm.config import ConfigError, load_config
from algorithm.config.resume_rules import changes
from algorithm.core.errors import UsageError
from algorithm.core.plugins import EXTENSIONS, Plugin
from algorithm.core.reading import read_json
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.env.base import VecEnv
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.extensions import make_extensions
from algorithm.extensions.base import Build
from algorithm.keys.signals import RewardSignals
from algorithm.run.context import RunContext
from algorithm.run.experience.faults import Faults
from algorithm.run.inputs import plugins_of
from algorithm.store.provenance import made_with
from main import main
from tests.house.test_docs import blocks_of
from tests.lib.sessions import weights_hash

PACKAGE = Path(__file__).parent / "plugin_package"
SPEC = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(continuous=1))
CPU = torch.device("cpu")

TASK = """\
default:
  base_config: {env_type: "asac_corridor.env:CorridorRecipe", env_name: short, max_step: 300, n_envs: 2}
  nn_config: {policy: {dense_n: 8}}
  replay_config: {capacity: 1000, beta_increment_per_sampling: 0.001}
  sac_config:
    extensions: [{"asac_corridor.extension:make_surprise": {strength: 0.5}}]
    batch_size: 16
    start_step: 50
    replay_ratio: 0.25
    save_model_per_step: 100
    write_summary_per_step: 100
  eval_config: {per_step: -1, episodes: 2}
workers:
  base_config: {workers: 2}
ppo:
  algorithm: PPO
  base_config: {max_step: 260}
  nn_config: {v: {dense_n: 8}}
  ppo_config: {rollout_step: 32, num_epoch: 1, num_minibatch: 2}
"""


@pytest.fixture(autouse=True)
def _forgets(monkeypatch):
    """Modules that a test has imported are removed behind it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    forget("asac_corridor", "their_", "own_ext")


def forget(*modules: str) -> None:
    """Let modules, by the beginnings of their names, be found and imported anew."""
    for name in [name for name in sys.modules if name.startswith(modules)]:
        del sys.modules[name]


def write(folder: Path, source: str) -> None:
    """Write the module ``their_theirs``, and put its folder on Python's path."""
    (folder / "their_theirs.py").write_text(source)
    sys.path.insert(0, str(folder))


@pytest.fixture
def there(cwd):
    """The folder to start from, with a task and the package beside its configuration."""
    task = cwd / "task"
    shutil.copytree(PACKAGE, task)
    (task / "nn.py").write_text("from asac_corridor.nn import ModelRep\n")
    (task / "config.yaml").write_text(TASK)
    return cwd


def test_parts_train_in_workers_and_are_evaluated_and_resumed(there, capsys):
    """With workers the weights become those of a run without."""
    assert main(["./task", "-c", "workers", "-n", "a", "--seed=1", "--device=cpu"]) == 0
    assert "ModelRep nn.py" in capsys.readouterr().out
    assert main(["./task", "-n", "b", "--seed=1", "--device=cpu", "--quiet"]) == 0
    folder = there / "models" / "task" / "a"
    assert weights_hash(folder) == weights_hash(folder.with_name("b"))
    assert "plugin/surprise/loss/surprise" in (folder / "metrics.csv").read_text()
    parts = ["asac_corridor.env:CorridorRecipe", "asac_corridor.extension:make_surprise"]
    assert read_json(folder / "manifest.json")["plugins"] == parts
    assert main(["./task", "-n", "a", "--eval=2"]) == 0
    policy, env = asac.load(folder, "latest"), asac.make_env("./task")
    assert env.action_space.contains(policy.act(env.reset(seed=1)[0])[0])

    with (there / "task" / "asac_corridor" / "env.py").open("a") as file:
        file.write("\n# mended\n")
    forget("asac_corridor")
    capsys.readouterr()
    assert main(["./task", "-n", "b", "--resume", "--max_step=320"]) == 0
    said = capsys.readouterr().out
    assert "resumed, not bit-exact: the code of asac_corridor has been changed since" in said


def test_ppo_takes_the_bonus_and_the_loss_and_refuses_what_it_would_not_use(there, capsys):
    ppo = ["./task", "-c", "ppo", "--seed=1", "--device=cpu", "--quiet"]
    assert main([*ppo, "-n", "p"]) == 0
    assert "plugin/surprise/loss/surprise" in (there / "models/task/p/metrics.csv").read_text()
    write(there, MAKERS)
    for maker, said in (
        ("shrinking", "the extension Shrink does not work with"),
        ("asking", "action values"),
    ):
        assert main([*ppo, "-o", f"sac_config.extensions=['their_theirs:{maker}']"]) == 2
        assert said in capsys.readouterr().err
    assert main([*ppo, "-n", "q", "-o", "sac_config.extensions=['their_theirs:proposing']"]) == 0


MAKERS = """
import torch
from torch import nn

from algorithm.extensions.base import Extension


class Shrink(Extension):
    def auxiliary_losses(self, ctx):
        return {"q": ctx.state[:, ctx.learned].square().mean()}


class Ask(Extension):
    def own_losses(self, ctx):
        return {"q": ctx.q(ctx.state).mean()}


class Propose(Extension):
    def __init__(self):
        super().__init__("spread")
        self.own.append(nn.Linear(1, 1))

    def own_losses(self, ctx):
        policy, learned = ctx.policy(), ctx.batch.valid[:, ctx.learned]
        first = policy.continuous.mean if policy.logits is None else policy.logits
        assert first.shape[:2] == learned.shape and not first.requires_grad
        self.shown.show({"spread": first.std()})
        return {"propose": self.own[0].weight.square().sum()}


class Choose(Extension):
    num_candidates = 3

    def __init__(self, size):
        super().__init__()
        self.own.append(nn.Linear(size, 1))

    def own_losses(self, ctx):
        return {"choose": self.own[0](ctx.batch.action).square().mean()}

    def score_actions(self, state, action):
        return self.own[0](action).squeeze(-1)


class Idle(Extension):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))


class Critic(Extension):
    pass


def shrinking(build):
    return Shrink()


def asking(build):
    return Ask()


def proposing(build):
    return Propose()


def choosing(build):
    return Choose(build.spec.action.size)


def idle(build):
    return Idle()


def critic(build):
    return Critic()


def nothing(build, strength=1.0):
    return None


def failing(build):
    raise ZeroDivisionError("no width")


def leaving(build):
    raise SystemExit(3)


number = 3
"""


def made(*entries: object):
    """The extensions of a configuration with these entries."""
    options = SacConfig(extensions=list(entries))
    build = Build(
        spec=SPEC, state_size=3, options=options, signals=RewardSignals(), make_network=torch.nn.Linear
    )
    return make_extensions(build)


@pytest.mark.parametrize(
    ("entry", "what", "why"),
    [
        ("their_theirs:absent", "cannot be loaded", "AttributeError: module 'their_theirs' has no"),
        ("their_absent:make", "cannot be loaded", "ModuleNotFoundError: No module named 'their_absent'"),
        ("their_theirs:number", "has no maker", "their_theirs:number is 3"),
        ("their_theirs:nothing", "is not a valid extension", "has returned None"),
        ({"their_theirs:nothing": {"strenth": 2}}, "does not take", "unexpected keyword argument 'strenth'"),
        ("their_theirs:failing", "cannot be made", "ZeroDivisionError: no width"),
        ("their_theirs:leaving", "cannot be made", "SystemExit: 3"),
        ("their_theirs:idle", "has parameters that nothing trains", "scale"),
        ("their_theirs:critic", "two parts of the agent are called critic", "names of their classes"),
    ],
)
def test_an_extension_that_cannot_be_used(tmp_path, entry, what, why):
    write(tmp_path, MAKERS)
    with pytest.raises(UsageError) as caught:
        made(entry)
    assert what in caught.value.what and why in caught.value.why and caught.value.fix
    assert "sac_config.extensions" in caught.value.where


RECIPES = """
from algorithm.env.gym import GymRecipe


class Other(GymRecipe):
    pass


class More(GymRecipe):
    def __init__(self, place, **more):
        super().__init__(**more)


class Thing:
    def __init__(self, **given):
        pass


def function(**given):
    return GymRecipe(**given)
"""


class Rendered(VecEnv):
    """An environment that knows its request, and hands out no pictures."""

    render_modes = ("human",)

    def __init__(self, request):
        self.request = request

    def close(self):
        self.request = None


@pytest.mark.parametrize(
    ("value", "source", "what", "why"),
    [
        ("their_theirs:Other", "raise OSError('no licence')", "cannot be loaded", "OSError: no licence"),
        ("their_theirs:Other", "raise SystemExit('bye')", "cannot be loaded", "SystemExit: bye"),
        ("their_theirs:Othr", RECIPES, "cannot be loaded", "AttributeError"),
        ("their_theirs:function", RECIPES, "cannot be made", "their_theirs:function: too many positional"),
        ("their_theirs:Thing", RECIPES, "makes no environments", "their_theirs:Thing is <class"),
        ("their_theirs:More", RECIPES, "cannot be made", "More: missing a required argument: 'place'"),
    ],
)
def test_a_kind_of_environment_that_cannot_be_used(tmp_path, value, source, what, why):
    """Only where it is used: a configuration that names it loads, and all else works."""
    write(tmp_path, source)
    loaded = load_config("Pendulum-v1", overrides={"base_config.env_type": value})
    assert loaded.config.base_config.env_type == value
    with pytest.raises(UsageError) as caught:
        make_vec_env(EnvRequest(value, "Pendulum-v1", seed_of=lambda index, episode: 0))
    assert caught.value.what == f"the kind of environment {value} {what}" and why in caught.value.why
    assert caught.value.where == "base_config.env_type" and caught.value.fix
    make_vec_env(EnvRequest("GYM", "Pendulum-v1", seed_of=lambda index, episode: 0)).close()


def test_a_kind_that_makes_all_its_environments_itself(tmp_path):
    """It gets what was asked for, and what it cannot do is refused instead of left out."""
    write(tmp_path, "def make(request):\n    return request.env_args['made'](request)\n")
    ours = "their_theirs:make"
    asked = {"env_args": {"made": Rendered}, "n": 3, "seed_of": lambda index, episode: 7}
    env = make_vec_env(EnvRequest(ours, "short", **asked))
    assert (env.request.env_name, env.request.n, env.request.seed_of(0, 0)) == ("short", 3, 7)
    with pytest.raises(UsageError, match=f"{ours} environments have no workers and no wrappers"):
        make_vec_env(EnvRequest(ours, "short", **asked, wrappers=[{"ClipReward": {}}], workers=1))
    with pytest.raises(UsageError, match=f"{ours} environments have no video"):
        make_vec_env(EnvRequest(ours, "short", **asked, video=True))
    with pytest.raises(UsageError, match="it has returned None"):
        make_vec_env(EnvRequest(ours, "short", **{**asked, "env_args": {"made": lambda request: None}}))


def test_a_configuration_is_read_without_an_import_of_its_parts(there):
    (there / "task" / "asac_corridor" / "extension.py").write_text("raise OSError")
    alone = ["reward_signals.extrinsic.strength=0"]  # its bonus is learned from
    loaded = load_config("./task", None, alone)
    assert loaded.config.sac_config.extensions and "asac_corridor" not in sys.modules
    with pytest.raises(ConfigError, match="there is no reward"):
        load_config("./task", None, [*alone, "sac_config.extensions=[]"])


def test_a_resumed_run_may_have_other_arguments_and_no_other_extensions(there):
    def effect(entries):
        old, new = (
            load_config("./task", None, words, seed=1) for words in ([], [f"sac_config.extensions={entries}"])
        )
        (change,) = changes(old, new)
        return str(change.effect)

    surprise = "asac_corridor.extension:make_surprise"
    assert effect(f"[{{'{surprise}': {{strength: 1}}}}]").startswith("applied: they are made with these")
    for other in ("[]", "['a:b']", f"['{surprise}', 'a:b']"):
        assert effect(other).startswith("refused: their networks")


def test_an_extension_may_lie_in_the_tasks_folder_and_judges_actions_of_remote_actors(there):
    """A learner without an environment of its own finds it too."""
    (there / "task" / "own_ext.py").write_text(MAKERS)
    own = [
        "algorithm=SAC",
        "base_config.env_type=GYM",
        "sac_config.nn=null",
        "sac_config.extensions=['own_ext:choosing']",
    ]
    loaded = load_config("./task", None, own, seed=1)
    context = RunContext(loaded=loaded, device="cpu", faults=Faults(None), stack=ExitStack())
    (agent,) = context.agents({"default": SPEC}, there / "task").values()
    acting = make_acting(
        SAC,
        ActingInputs(SPEC, loaded.config, nn_file=None, behaviour="default", seed=1, own_seed=1, device=CPU),
    )
    assert set(acting.parts) == set(agent.acting_parts()) == {"normaliser", "rep", "policy", "Choose"}
    (plugin,) = plugins_of(loaded, ["default"])
    assert plugin == Plugin(EXTENSIONS, "own_ext:choosing")
    assert "the code of own_ext" in made_with(there, plugins=[plugin])


def test_the_page_shows_the_package_as_it_is():
    page = PACKAGE.parents[2] / "docs" / "parts.md"
    shown = {block.text for block in blocks_of(page, page.read_text("utf-8"))}
    for name in (
        "asac_corridor/env.py",
        "asac_corridor/extension.py",
        "asac_corridor/nn.py",
    ):
        assert (PACKAGE / name).read_text("utf-8") in shown, f"{name} has changed"
