"""The JSON schema of a task's config.yaml, for editors and ``--schema``."""

from __future__ import annotations

from typing import Any

from pydantic import Field, TypeAdapter, create_model

from algorithm.config.random_params import Form
from algorithm.config.schema import BEHAVIOUR_KEYS, MERGE_KEYS, RANDOM_BLOCKS, Config
from algorithm.core.fields import Block, block_of


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a task's config.yaml: sections, each of the shape of `Config`."""
    declared = Config.model_fields
    own: dict[str, Any] = {name: (declared[name].annotation, declared[name]) for name in BEHAVIOUR_KEYS}
    behaviour: Any = create_model("Behaviour", __base__=Block, **own)
    merged = {name: Field(None, description=text) for name, text in MERGE_KEYS.items()}
    section: Any = create_model(
        "Section",
        __base__=Config,
        ma_config=(dict[str, behaviour] | None, merged["ma_config"]),
        inherited=(str | list[str] | None, merged["inherited"]),
    )
    schema = TypeAdapter(dict[str, section | None]).json_schema()
    definitions = schema["$defs"] | {"Drawn": Form.model_json_schema()}
    for name in RANDOM_BLOCKS:
        block = block_of(declared[name])
        assert block is not None, f"{name} is a block"
        properties = definitions[block.__name__]["properties"]
        properties["random_params"] = {
            "description": MERGE_KEYS["random_params"],
            "type": "object",
            "properties": {key: {"$ref": "#/$defs/Drawn"} for key in properties},
            "additionalProperties": False,
        }
    meta = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "config.yaml of a task"}
    return {**meta, **schema, "$defs": definitions}
