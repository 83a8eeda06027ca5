"""How wrappers may be written: a name alone, or a name with arguments."""

from __future__ import annotations

import pytest

from algorithm.config import ConfigError, load_config_file


def wrappers_of(tmp_path, text):
    file = tmp_path / "config.yaml"
    file.write_text(f"base_config: {{env_type: GYM, env_name: Pendulum-v1, wrappers: {text}}}\n")
    return load_config_file(file).config.base_config.wrappers


@pytest.mark.parametrize(("text", "wrappers"), [
    ("[ClipReward]", ({"ClipReward": None},)),
    ("['my.module:Wrapper']", ({"my.module:Wrapper": None},)),
    ("[my.module:Wrapper, {TimeLimit: {max_episode_steps: 5}}]",
     ({"my.module:Wrapper": None}, {"TimeLimit": {"max_episode_steps": 5}})),
    ("[{ClipReward: null}]", ({"ClipReward": None},)),
    ("[{ClipReward: }]", ({"ClipReward": None},)),
    ("[{ClipReward: {}}]", ({"ClipReward": {}},)),
    ("[]", ()),
])  # fmt: skip
def test_a_wrapper_is_a_name_alone_or_with_arguments(tmp_path, text, wrappers):
    assert wrappers_of(tmp_path, text) == wrappers


@pytest.mark.parametrize(("text", "fragments"), [
    ("[5]", ["it is wrong at 5"]),
    ("[{ClipReward: 5}]", ["it is wrong at 5"]),
    ("[{TimeLimit: [5]}]", ["it is wrong at [5]"]),
    ("[{ClipReward: null, TimeLimit: null}]", ["an entry of its own"]),
    ("[{}]", ["an entry of its own"]),
    ("ClipReward", ["ClipReward is text"]),
    ("{ClipReward: null}", ["{ClipReward: null} is a mapping"]),
])  # fmt: skip
def test_what_is_no_list_of_wrappers_is_told_how_to_write_one(tmp_path, text, fragments):
    with pytest.raises(ConfigError) as caught:
        wrappers_of(tmp_path, text)
    told = str(caught.value)
    for fragment in ("base_config.wrappers", "[Name, 'module:Class', {Name: {argument: value}}]", *fragments):
        assert fragment in told
    assert told.count("to do") == 1
