"""Plug-ins: a real package that is installed and trained with, and what can be wrong with one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import asac
from algorithm.agents.off_policy.acting import make_acting
from algorithm.agents.roles import ActingInputs
from algorithm.agents.sac.config import SacConfig
from algorithm.agents.sac.family import SAC
from algorithm.config import ConfigError, load_config, reference
from algorithm.config.resume_rules import changes
from algorithm.core.errors import ModelError, UsageError
from algorithm.core.plugins import EXTENSIONS, NETWORKS, Plugin, find, installed
from algorithm.core.reading import read_json
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.env.base import VecEnv
from algorithm.env.kinds import ENVS
from algorithm.env.parameters.config import read_parameters
from algorithm.env.parameters.curricula import ParameterSource
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.extensions import make_extensions
from algorithm.extensions.base import Build
from algorithm.extras.check.command import check_single
from algorithm.extras.check.context import CheckLimits
from algorithm.extras.sharing.trust import unlisted_keys
from algorithm.keys.signals import RewardSignals
from algorithm.nn.loader import load_networks
from algorithm.run.context import RunContext
from algorithm.run.experience.faults import Faults
from algorithm.run.user_code import nn_file, plugins_of
from algorithm.store.listing import listing
from algorithm.store.provenance import made_with
from main import main
from tests.house.test_docs import blocks_of
from tests.lib.sessions import weights_hash

PACKAGE = Path(__file__).parent / "plugin_package"
SPEC = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(continuous=1))
CPU = torch.device("cpu")

TASK = """\
default:
  base_config: {env_type: CORRIDOR, env_name: short, max_step: 300, n_envs: 2}
  nn_config: {policy: {dense_n: 8}}
  replay_config: {capacity: 1000, beta_increment_per_sampling: 0.001}
  sac_config:
    nn: corridor
    extensions: [{surprise: {strength: 0.5}}]
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


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder that pip has installed the package into."""
    folder = tmp_path_factory.mktemp("installed")
    source = shutil.copytree(PACKAGE, folder / "source")  # nothing is built beside the tests
    words = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    words += ["--no-build-isolation", "--target", str(folder / "site"), str(source)]
    subprocess.run(words, check=True, capture_output=True, timeout=100)
    return folder / "site"


@pytest.fixture(autouse=True)
def _forgets(monkeypatch):
    """What a test has installed and imported is forgotten behind it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    installed.cache_clear()
    yield
    forget("asac_corridor", "their_", "own_ext")


def forget(*modules: str) -> None:
    """Let modules, by the beginnings of their names, be found and imported anew."""
    installed.cache_clear()
    for name in [name for name in sys.modules if name.startswith(modules)]:
        del sys.modules[name]


def install(folder: Path, source: str, package: str = "theirs", version: str = "1.0", **groups: dict) -> None:
    """Put a package there as pip would: a module, and entry points by group."""
    module = f"their_{package.replace('-', '_')}"
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = []
    for group, names in groups.items():
        lines += [f"[asac.{group}]", *(f"{name} = {value}" for name, value in names.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    installed.cache_clear()


@pytest.fixture
def there(tmp_path, monkeypatch):
    """The folder to start from, with a task."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "config.yaml").write_text(TASK)
    return tmp_path


def test_a_package_trains_in_a_process_of_its_own_and_is_evaluated_and_resumed(site, there, root, capsys):
    """With workers the weights become those of a run without."""
    words = [sys.executable, str(root / "main.py"), "./task", "-c", "workers", "-n", "a", "--device=cpu"]
    paths = {"PYTHONPATH": os.pathsep.join([str(root), str(site)])}
    done = subprocess.run(
        [*words, "--seed=1"], env=os.environ | paths, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0 and "ModelRep asac_corridor.nn" in done.stdout, done.stderr

    sys.path.insert(0, str(site))
    assert main(["./task", "-n", "b", "--seed=1", "--device=cpu", "--quiet"]) == 0
    folder = there / "models" / "task" / "a"
    assert weights_hash(folder) == weights_hash(folder.with_name("b"))
    assert "plugin/surprise/loss/surprise" in (folder / "metrics.csv").read_text()
    of = dict.fromkeys(("CORRIDOR", "surprise", "corridor"), "asac-corridor 0.1.0")
    assert read_json(folder / "manifest.json")["plugins"] == of
    assert not (folder / "corridor.py").exists(), "its networks stay in their package"
    assert main(["./task", "-n", "a", "--eval=2"]) == 0
    policy, env = asac.load(folder, "latest"), asac.make_env("./task")
    assert env.action_space.contains(policy.act(env.reset(seed=1)[0])[0])
    for name in of:
        assert re.search(rf"^  {name} .*, asac-corridor 0\.1\.0$", listing("", there), re.M)

    other = shutil.copytree(site, there / "site")  # the next version, with other code
    (info,) = other.glob("*.dist-info/METADATA")
    info.write_text(info.read_text().replace("Version: 0.1.0", "Version: 0.2.0"))
    with (other / "asac_corridor" / "env.py").open("a") as file:
        file.write("\n# mended\n")
    sys.path[0] = str(other)
    forget("asac_corridor")
    capsys.readouterr()
    assert main(["./task", "-n", "b", "--resume", "--max_step=320"]) == 0
    said = capsys.readouterr().out
    assert "resumed, not bit-exact: the package asac-corridor was 0.1.0 and is 0.2.0" in said
    assert "resumed, not bit-exact: the code of asac_corridor has been changed since" in said
    assert read_json(folder.with_name("b") / "manifest.json")["resumed"][0]["plugins"].keys() == of.keys()


def test_ppo_takes_the_bonus_and_the_loss_and_refuses_what_it_would_not_use(site, there, capsys):
    sys.path.insert(0, str(site))
    ppo = ["./task", "-c", "ppo", "--seed=1", "--device=cpu", "--quiet"]
    assert main([*ppo, "-n", "p"]) == 0
    assert "plugin/surprise/loss/surprise" in (there / "models/task/p/metrics.csv").read_text()
    install(there, MAKERS)
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
    install(tmp_path, MAKERS)
    with pytest.raises(UsageError) as caught:
        made(entry)
    assert what in caught.value.what and why in caught.value.why and caught.value.fix
    assert "sac_config.extensions" in caught.value.where
    if "strenth" in str(entry):
        assert caught.value.fix == "its arguments are: strength=1.0"


def test_algorithms_and_samplers_of_a_package_are_known_by_their_names(tmp_path):
    groups = {"families": {"hill": "their_theirs:HILL"}, "samplers": {"recent": "their_theirs:Recent"}}
    install(
        tmp_path, "from algorithm.agents import Family\nHILL = Family(name='HILL', make_agent=None)", **groups
    )
    keys = {"algorithm": "hill", "replay_config.sampler": "recent", "sac_config.use_priority": False}
    loaded = load_config("Pendulum-v1", overrides=keys)
    assert [one.origin for one in plugins_of(loaded, ["default"], tmp_path)] == ["theirs 1.0"] * 2
    assert list(unlisted_keys(loaded.config)) == [], "an export may name what is installed"
    assert re.search(
        r"^  hill +algorithm, theirs 1.0\n  recent +sampler, theirs 1.0$", listing("", tmp_path), re.M
    )


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
    install(tmp_path, source, envs={"THEIRS": value})
    loaded = load_config("Pendulum-v1", overrides=["base_config.env_type=THEIRS"])
    assert loaded.config.base_config.env_type == "THEIRS" and "THEIRS" in listing("", tmp_path)
    with pytest.raises(UsageError) as caught:
        make_vec_env(EnvRequest("THEIRS", "Pendulum-v1", seed_of=lambda index, episode: 0))
    assert caught.value.what == f"the plug-in THEIRS of theirs 1.0 {what}" and why in caught.value.why
    assert caught.value.where == f"base_config.env_type, {value}" and caught.value.fix
    make_vec_env(EnvRequest("GYM", "Pendulum-v1", seed_of=lambda index, episode: 0)).close()


def test_a_kind_that_makes_all_its_environments_itself(tmp_path):
    """It gets what was asked for, and what it cannot do is refused instead of left out."""
    source = "def make(request):\n    return request.env_args['made'](request)\n"
    install(tmp_path, source, envs={"OURS": "their_theirs:make"})
    asked = {"env_args": {"made": Rendered}, "n": 3, "seed_of": lambda index, episode: 7}
    env = make_vec_env(EnvRequest("OURS", "short", **asked))
    assert (env.request.env_name, env.request.n, env.request.seed_of(0, 0)) == ("short", 3, 7)
    with pytest.raises(UsageError, match="OURS environments have no workers and no wrappers"):
        make_vec_env(EnvRequest("OURS", "short", **asked, wrappers=[{"ClipReward": {}}], workers=1))
    with pytest.raises(UsageError, match="OURS environments have no video"):
        make_vec_env(EnvRequest("OURS", "short", **asked, video=True))
    pool = {"parameters": ParameterSource(read_parameters({"gravity": 9.81}))}
    with pytest.raises(UsageError, match="OURS environments have no parameters"):
        make_vec_env(EnvRequest("OURS", "short", **asked, **pool))
    with pytest.raises(UsageError, match="it has returned None") as caught:
        make_vec_env(EnvRequest("OURS", "short", **{**asked, "env_args": {"made": lambda request: None}}))
    assert "the plug-in OURS of theirs 1.0 makes no environments" in caught.value.what
    loaded = load_config("Pendulum-v1", overrides=["base_config.env_type=OURS"])
    with pytest.raises(UsageError, match="OURS environments are not Gymnasium environments"):
        list(check_single(loaded, CheckLimits()))


def problem(there: Path, key: str, value: str):
    """What is wrong with a configuration in which this key stands on the third line."""
    block, name = key.split(".")
    (there / "task" / "config.yaml").write_text(f"default:\n  {block}:\n    {name}: {value}\n")
    with pytest.raises(ConfigError) as caught:
        load_config("./task")
    (found,) = caught.value.problems
    assert found.where.startswith("task/config.yaml:3") and key in found.what
    return found


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("base_config.env_type", "GRIDWRLD", "there is no kind of environment `GRIDWRLD`"),
        ("base_config.env_type", "GRIDWRLD", "did you mean `GRIDWORLD`? built in: UNITY, GYM,"),
        ("base_config.env_type", "GRIDWRLD", f"{sys.executable} -m pip install PACKAGE"),
        ("sac_config.extensions", "[smal]", "did you mean `small`? installed plug-ins: small"),
        ("sac_config.extensions", "[{Curiosity: null}]", "it has its own keys: sac_config.curiosity"),
        ("sac_config.extensions", "small", "a list such as"),
        ("sac_config.extensions", "[{a: null, b: null}]", "every name needs its own entry"),
    ],
)
def test_a_name_that_nobody_has(there, key, value, told):
    install(there, "", envs={"GRIDWORLD": "their_theirs:Other"}, extensions={"small": "x:y"})
    found = problem(there, key, value)
    assert told in f"{found.why}\n{found.fix}"


def test_two_packages_with_one_name(there):
    for package in ("one", "other"):
        kinds = {"GRID": f"their_{package}:Grid", package.upper(): f"their_{package}:Grid"}
        install(there, RECIPES.replace("Other", "Grid"), package=package, envs=kinds)
    found = problem(there, "base_config.env_type", "GRID")
    assert "several packages have the kind of environment `GRID`" in found.why
    assert "one 1.0 (their_one:Grid)" in found.why and "other 1.0 (their_other:Grid)" in found.why
    assert "pip uninstall other" in found.fix
    assert find(ENVS, "ONE") and find(ENVS, "OTHER") and find(ENVS, "GYM") is None
    assert re.search(r"GRID .*refused: one 1\.0 .* and other 1\.0", listing("", there))


@pytest.mark.parametrize(
    ("group", "name", "own"),
    [(ENVS, "GYM", "GYM"), (ENVS, "Gym", "GYM"), (EXTENSIONS, "rnd", "rnd"), (NETWORKS, "nn", "nn")],
)
def test_a_plugin_with_the_name_of_what_is_built_in(there, group, name, own):
    install(there, RECIPES, **{group.entry_points.removeprefix("asac."): {name: "their_theirs:Other"}})
    with pytest.raises(UsageError) as caught:
        find(group, name)
    assert f"`{own}` is built in" in caught.value.why and "pip uninstall theirs" in caught.value.fix
    assert "refused: " in listing("", there)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nn_wid", "did you mean `nn_wide`?"),
        ("gird", "did you mean `grid`?"),
        ("thing", "the plug-in thing of theirs 1.0 is not a module"),
    ],
)
def test_networks_that_cannot_be_found(there, name, said):
    install(there, "class Model: ...", networks={"grid": "their_theirs", "thing": "their_theirs:Model"})
    (there / "nn_wide.py").write_text("")
    config = load_config("Pendulum-v1", overrides=[f"sac_config.nn={name}"]).config
    with pytest.raises(UsageError) as caught:
        nn_file(config, there)
    assert said in str(caught.value)


def test_networks_of_a_package_are_named_where_they_are_wrong_and_a_file_goes_first(there):
    install(there, "class Model: ...", networks={"grid": "their_theirs"})
    config = load_config("Pendulum-v1", overrides=["sac_config.nn=grid"]).config
    with pytest.raises(ModelError, match="unknown model class Model") as caught:
        load_networks(SPEC, nn_file(config, there), {})
    assert caught.value.where == str(there / "their_theirs.py")
    (there / "grid.py").write_text("")
    assert nn_file(config, there) == there / "grid.py"


def test_generated_files_do_not_depend_on_what_is_installed(tmp_path):
    install(tmp_path, "", envs={"GRIDWORLD": "a:b"}, extensions={"small": "a:b"}, networks={"grid": "a"})
    assert reference.main(["--check"]) == 0


def test_a_configuration_is_read_without_an_import_of_a_plugin(there):
    install(
        there, "raise OSError", envs={"CORRIDOR": "their_theirs:R"}, extensions={"surprise": "their_theirs:s"}
    )
    alone = ["reward_signals.extrinsic.strength=0"]  # its bonus is learned from
    loaded = load_config("./task", None, alone)
    assert loaded.config.sac_config.extensions and "their_theirs" not in sys.modules
    with pytest.raises(ConfigError, match="there is no reward"):
        load_config("./task", None, [*alone, "sac_config.extensions=[]"])


def test_a_resumed_run_may_have_other_arguments_and_no_other_extensions(there):
    install(there, MAKERS, envs={"CORRIDOR": "a:b"}, extensions={"surprise": "a:b", "small": "a:b"})

    def effect(entries):
        old, new = (
            load_config("./task", None, words, seed=1) for words in ([], [f"sac_config.extensions={entries}"])
        )
        (change,) = changes(old, new)
        return str(change.effect)

    assert effect("[{surprise: {strength: 1}}]").startswith("applied: they are made with these arguments")
    for other in ("[]", "[small]", "[surprise, small]"):
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
    (plugin,) = plugins_of(loaded, ["default"], there / "task")
    assert plugin == Plugin(EXTENSIONS, "own_ext:choosing", "own_ext:choosing")
    made = made_with(there, plugins=[plugin])
    assert "the code of own_ext" in made and not any(name.startswith("the package") for name in made)
    held = load_config("./task", None, [*own, "sac_config.noise_repeat=4"], seed=1)
    with pytest.raises(UsageError, match="noise_repeat is 4, and Choose chooses among actions"):
        replace(context, loaded=held).agents({"default": SPEC}, there / "task")


def test_the_page_shows_the_package_as_it_is():
    page = PACKAGE.parents[2] / "docs" / "parts.md"
    shown = {block.text for block in blocks_of(page, page.read_text("utf-8"))}
    for name in (
        "pyproject.toml",
        "asac_corridor/env.py",
        "asac_corridor/extension.py",
        "asac_corridor/nn.py",
    ):
        assert (PACKAGE / name).read_text("utf-8") in shown, f"{name} has changed"
