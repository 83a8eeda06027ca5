"""Signatures, help and reprs of `import asac`, as an editor and `help` show them."""

import inspect
import re
from typing import get_args, get_type_hints

import pytest

import asac
from algorithm.agents.registry import FAMILIES

NAMED = [
    asac.train,
    asac.Agent,
    asac.Agent.load,
    asac.load,
    asac.make_env,
    asac.check,
    asac.Run,
    asac.Run.evaluate,
    asac.Run.resume,
]
PLAIN = [
    *(asac.Agent.learn, asac.Agent.predict, asac.Agent.evaluate, asac.Agent.set_env, asac.Agent.save),
    *(asac.Run.policy, asac.Run.make_env, asac.Run.export, asac.Run.copy, asac.Policy.act),
    *(asac.Training.log, asac.Training.stop, asac.from_mlagents),
]


@pytest.mark.parametrize("named", NAMED + PLAIN)
def test_help_describes_every_parameter_in_plain_words(named):
    signature, text = inspect.signature(named), inspect.getdoc(named)
    assert signature.parameters.keys() - {"self"} == {*re.findall(r"^(\w+): +\S", text, re.M)}
    assert not re.search(r"`|PosixPath|: '|> '", f"{signature}{text}"), "names without marks or quotes"
    assert (">>> import asac" in text) == (named in NAMED)


def test_an_editor_completes_the_names():
    hints = get_type_hints(asac.train)
    names = {name: get_args(get_args(hints[name])[0]) for name in ("algorithm", "preset", "device")}
    assert {*names["algorithm"]} == {*FAMILIES} and "plain" in names["preset"] and "cuda" in names["device"]
