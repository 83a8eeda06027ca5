"""Write the generated parts of docs/: flags of the commands, names of the package, tables, examples."""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Any, get_args

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import asac  # noqa: E402 - the path comes before
from algorithm.app.cli.ds import distributed_parser  # noqa: E402
from algorithm.app.cli.flags import EVERY_ROLE, flags_of  # noqa: E402
from algorithm.app.cli.parsing import train_parser  # noqa: E402
from algorithm.app.cli.train import TrainOptions  # noqa: E402
from algorithm.app.policy import PolicyState  # noqa: E402
from algorithm.core.extras import extra  # noqa: E402
from scripts.reference import keep  # noqa: E402

WIDTH = 96
"""Characters that a line of code may have in the column of the site."""

_PART = re.compile(r"(?<=<!-- generated: )(?P<name>[\w-]+) -->\n.*?(?=<!-- end -->)", re.S)
_FIELD = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \w+)*): +", re.M)
_CODE = re.compile(r"(?<!\w)--?[a-z]\w*(?: [A-Z]+)?|[a-z]\w*_\w+(?:\.\w+)*")
_NETWORK = re.compile(r"`(nn_config\.\w+)\.(\w+)`")
_TRAINERS = extra("trainer_rows")()
_BY_HAND = ("Agent", "Run")
"""Classes that users construct themselves."""
_INNER = ("Run.check_spaces", "Run.configured", "StorageError.of", "PolicyState.replaced")
"""Public members for this project only, which the page leaves out."""


def flags(parser: argparse.ArgumentParser, known: Container[str] = ()) -> str:
    """Return the flags of a command, except ``known`` ones, as a table for each group."""
    tables = []
    for group in parser._action_groups:
        rows = []
        for action in group._group_actions:
            if (action.option_strings or [action.dest])[0] in known:
                continue
            words = ", ".join(f"`{word}`" for word in action.option_strings) or f"`{action.dest}`"
            value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
            named = f" `{value}`" if value and action.option_strings else ""
            meaning = (action.help or "").replace("|", r"\|")
            rows.append(f"| {words}{named} | {meaning} |")
        if rows:
            head = [f"### {group.title}", "", "| flag | meaning |", "|---|---|"]
            tables.append("\n".join([*head, *rows]))
    return "\n\n".join(tables)


def distributed_flags() -> str:
    """Return tables of the flags that only `asac-ds` has, and of the flags of `asac` that each role takes."""
    by_roles: dict[str, list[str]] = {}
    for _, declared in flags_of(TrainOptions):
        if declared.roles:
            roles = "every role" if declared.roles == EVERY_ROLE else ", ".join(declared.roles)
            by_roles.setdefault(roles, []).append(f"`{declared.names[0]}`")
    rows = [f"| {roles} | {', '.join(taken)} |" for roles, taken in by_roles.items()]
    head = ["### flags of asac", "", "| role | takes |", "|---|---|"]
    of_ds = flags(distributed_parser(), {*train_parser()._option_string_actions, "env"})
    return "\n\n".join([of_ds, "\n".join([*head, *rows])])


def names() -> str:
    """Return signature and docstring of every public name of the package, and of members of its classes."""
    values = {name: getattr(asac, name) for name in asac._PLACES if name != "__version__"}
    values["PolicyState"] = PolicyState  # which Policy.act returns
    return "\n\n".join(text for name, value in values.items() for text in _described(name, value))


def _described(name: str, value: Callable[..., object]) -> Iterator[str]:
    """Yield the parts of a name's section: heading, signature, docstring, members."""
    yield f"## {name}"
    if name in _BY_HAND:
        made = _signature("def __init__", vars(value)["__init__"])
        yield _code(f"class {name}:\n{indent(made, '    ')}")
    elif not inspect.isclass(value):
        yield _code(_signature(f"def {name}", value))
    yield _prose(value)
    members = [_member(name, *item) for item in vars(value).items()] if inspect.isclass(value) else []
    short = [text for text in members if text.startswith("- ")]
    yield from ["\n".join(short)] if short else []
    yield from (text for text in members if text.startswith("#"))


def _member(name: str, member: str, value: Any) -> str:  # noqa: ANN401 - a function or a property
    """Return a public member of a class: an item of a list if it fits in one, else a section; else empty."""
    function = value.__func__ if isinstance(value, classmethod) else value
    if member.startswith("_") or f"{name}.{member}" in _INNER:
        return ""
    if isinstance(function, property):
        return f"- `{member}: {function.fget.__annotations__['return']}`: {_prose(function)}"
    if not inspect.isfunction(function):
        return ""
    signature, prose = _signature(f"def {member}", function), _prose(function)
    if "\n" in signature or "\n\n" in prose:
        return "\n\n".join([f"### {name}.{member}", _code(signature), prose])
    short = signature.removeprefix("def ").replace("(self, ", "(").replace("(self)", "()")
    return f"- `{short.removesuffix(': ...').removesuffix(' -> None')}`: {prose}"


def _signature(head: str, value: Callable[..., object]) -> str:
    """Return a signature without types of parameters, with a line for each parameter if it is long."""
    signature = inspect.signature(value)
    words = [_parameter(parameter) for parameter in signature.parameters.values()]
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds:
        words.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    end = f" -> {signature.return_annotation}: ..."
    line = f"{head}({', '.join(words)}){end}"
    lines = "".join(f"    {word},\n" for word in words)
    return line if len(line) <= WIDTH else f"{head}(\n{lines}){end}"


def _parameter(parameter: inspect.Parameter) -> str:
    name, default = parameter.name, parameter.default
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return f"**{name}"
    if default is parameter.empty:
        return name
    return f'{name}="{default}"' if isinstance(default, str | Path) else f"{name}={default!r}"


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _prose(value: object) -> str:
    """Return a docstring with lines ``name: meaning`` as lists, and names of Sphinx roles as code."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", (inspect.getdoc(value) or "").replace("``", "`"))
    return "\n\n".join(map(_as_list, text.split("\n\n")))


def _as_list(block: str) -> str:
    """Return a paragraph with its lines ``name: meaning`` as a list."""
    if block.startswith(">>> "):
        code = re.sub(r"^(>>>|\.\.\.) ", "", block, flags=re.M)
        return _code(code.replace("import asac\n", "import asac\n\n", 1))
    text = _FIELD.sub(lambda match: f"\n- `{match['names']}`: ", block)
    head, _, rest = text.partition("\n- ")
    if not rest:
        return text
    items = re.sub(r"\n(?=[A-Z])", "\n\n", rest.replace("\n\n- ", "\n- "))
    items = re.sub(r"\n {2,}", "\n  ", items)
    return f"{head.strip()}\n\n- {items}".strip()


def offered(package: str) -> str:
    """Return a table of a package's public names, each with the first sentence of its docstring."""
    module = importlib.import_module(package)
    rows = [f"| `{name}` | {_first_sentence(getattr(module, name))} |" for name in module.__all__]
    return "\n".join(["| name | what it is |", "|---|---|", *rows])


def _first_sentence(value: object) -> str:
    """Return the first sentence of a docstring, or the choices of a Literal."""
    if choices := get_args(value):
        return f"One of {', '.join(map(repr, choices))}"
    text = _prose(value).partition("\n\n")[0].replace("\n", " ")
    # Within code, a full stop does not end a sentence.
    return re.split(r"(?<=\w[.:])\s(?=[A-Z])(?=(?:[^`]*`[^`]*`)*[^`]*$)", text)[0].rstrip(".:")


def example(name: str) -> str:
    """Return an example of ``docs/examples``."""
    return _code((ROOT / "docs" / "examples" / f"{name}.py").read_text("utf-8").rstrip())


def mlagents_keys() -> str:
    """Return the table of ML-Agents' keys, with ours or a remark; keys with equal cells share a row."""
    rows: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for key in (key for keys in _TRAINERS.values() for key in keys if key.theirs):
        name = _as_block(key) if not key.ours else key.theirs
        ours, remarks = rows.setdefault(name, ({}, {}))
        ours |= dict.fromkeys(key.ours)
        remarks |= dict.fromkeys(
            text for text in (key.remark, key.means) if text not in ("", "as in ML-Agents")
        )
    alike: dict[str, list[str]] = {}
    for name, (ours, remarks) in rows.items():
        words = _CODE.sub(r"`\g<0>`", "; ".join(remarks))
        here = (_same(name, *ours) if not words else "") or _together(list(ours))
        alike.setdefault(f"{here} ({words})" if here and words else here or words, []).append(name)
    lines = (f"| {_listed(names)} | {here} |" for here, names in alike.items())
    return "\n".join(["| key of ML-Agents | here |", "|---|---|", *lines])


def _same(theirs: str, *ours: str) -> str:
    """Return the block of our only key for one of ML-Agents if both have the same name; else empty."""
    block, _, last = ours[0].rpartition(".") if len(ours) == 1 else ("", "", "")
    return f"`{block}`, same name" if block and theirs.endswith(f".{last}") else ""


def _together(ours: Sequence[str]) -> str:
    """Return our names for a key; those of several networks or systems as one with ``*``."""
    first = ours[0] if ours else ""
    if len(ours) > 1 and first.startswith("nn_config"):
        return f"`nn_config.*.{first.rpartition('.')[2]}`"
    if len(ours) > 1 and "build_path" in first:
        return f"`{first.rpartition('.')[0]}.*`"
    return ", ".join(_NETWORK.sub(r"`\1`: `\2`", f"`{name}`") for name in ours)


def _listed(names: Sequence[str]) -> str:
    """Return names of keys, without a block that is the one before."""
    blocks = ["", *(name.rpartition(".")[0] for name in names)]
    return ", ".join(f"`{name.removeprefix(f'{blocks[at]}.')}`" for at, name in enumerate(names))


def _as_block(row: Any) -> str:  # noqa: ANN401 - a row of the table
    """Return the name of a key without counterpart, or of its block if several keys there have its remark."""
    block = row.theirs.rpartition(".")[0]
    beside = (key for key in _TRAINERS["ppo"] if key.theirs.startswith(f"{block}."))
    alike = [key for key in beside if key.remark == row.remark and not key.ours]
    return f"{block}.*" if block and len(alike) > 2 else row.theirs


PARTS: Mapping[str, Callable[[], str]] = {
    "asac": lambda: flags(train_parser()),
    "asac-ds": distributed_flags,
    "names": names,
    "ml-agents": mlagents_keys,
    **{name: partial(offered, f"algorithm.{name}") for name in ("core", "nn", "replay", "agents")},
    **{name: partial(example, name) for name in ("sac_by_hand", "recent", "hill")},
}
PAGES = ("command_line.md", "api.md", "coming_from.md", "parts.md")


def filled(text: str) -> str:
    """Return the text of a page with its generated parts renewed."""
    return _PART.sub(lambda match: f"{match['name']} -->\n\n{PARTS[match['name']]()}\n\n", text)


if __name__ == "__main__":
    pages = {Path("docs", name): filled((ROOT / "docs" / name).read_text("utf-8")) for name in PAGES}
    raise SystemExit(keep(pages, "python scripts/pages.py"))
