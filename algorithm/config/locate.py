"""Search for the folder, the file and the section that the command line's ENV and ``--config`` name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from algorithm.config import shipped_sections
from algorithm.config.env_names import (
    folder_of,
    is_dm_control,
    label_of,
    near_ids,
    nearest_task,
    with_package,
)
from algorithm.config.errors import ConfigError, Problem, suggest
from algorithm.config.schema import MERGE_KEYS, Config
from algorithm.config.tree import MappingNode, Node, ValueNode, merge, to_value
from algorithm.config.yaml_io import read_yaml, shown
from algorithm.env.kinds import DM_CONTROL, GYM

CONFIG_FILE = "config.yaml"
DEFAULT_SECTION = "default"
_INSTALLED = Path(__file__).resolve().parents[1] / "shipped_envs"
_PROJECT_ENVS = _INSTALLED if _INSTALLED.is_dir() else _INSTALLED.parents[1] / "envs"
"""Tasks that come with the framework, of an installed package or of the checkout."""


@dataclass(frozen=True)
class EnvFolder:
    """A task's folder and the name its runs are filed under, such as ``gym/pendulum``.

    env_name: the environment where nothing else names it; ``path`` is the current folder then
    """

    path: Path
    label: str
    env_name: str | None = None

    @property
    def given(self) -> dict[str, object]:
        """Dotted path → value of what the name of the task itself sets."""
        if self.env_name is None:
            return {}
        kind = DM_CONTROL if is_dm_control(self.env_name) else GYM
        return {"base_config.env_type": kind.name, "base_config.env_name": self.env_name}

    @property
    def defaults(self) -> dict[str, object]:
        """Dotted path → default that is another one where no task says how long to train."""
        return {} if self.env_name is None else {"base_config.stop_at_return": "auto"}


WHOLE_FILE = ""
"""Name of the only section of a file that has none."""


@dataclass(frozen=True)
class Source:
    """The chosen section and its file, with the file's whole content.

    file: None for an environment without a folder, of which no file was chosen
    section: WHOLE_FILE for a file that has none
    """

    file: Path | None
    section: str
    sections: MappingNode


def find_env(env: str) -> EnvFolder:
    """Find the folder that ENV names: below ``envs/`` here, below the project's ``envs/``, or any path.

    Where there is none with a config.yaml ENV may be the name of an environment: an id of Gymnasium,
    ``module:Id``, ``file.py:Id`` or ``dm.domain.task``. Raises ConfigError if it is neither, naming similar
    ones.
    """
    roots = _roots()
    for folder in (*(root / env for root in roots), Path(env)):
        try:
            folder = folder.resolve()
            if (folder / CONFIG_FILE).is_file():
                return EnvFolder(folder, _label(folder, roots))
        except (OSError, ValueError) as error:  # no system has such a path: too long, or with a NUL
            fix = "name a task, a folder or an environment"
            problem = Problem(f"unknown environment `{env:.80}`", "", str(error)[:80], fix)
            raise ConfigError([problem]) from error
    label = label_of(env)
    if label is None:
        raise ConfigError([_no_env(env, roots, near_ids(env))])
    return EnvFolder(Path.cwd(), label, env)


def find_section(folder: EnvFolder, config: str | None, problems: list[Problem]) -> Source | None:
    """Find the choice of ``--config``: a section of config.yaml, a file of the folder, or ``FILE:SECTION``.

    Where nothing has the name a section that ships with the framework may.
    """
    if folder.env_name is not None:
        return _file_beside(folder, config, problems)
    main_file = folder.path / CONFIG_FILE
    main = read_sections(main_file, problems)
    if config is None or (config == DEFAULT_SECTION and main is not None and WHOLE_FILE in main.children):
        return _checked(main_file, DEFAULT_SECTION, main, problems)
    if main is not None and config in main.children:
        return Source(main_file, config, main)
    name, colon, section = config.rpartition(":")
    file = _file(folder.path, name if colon else config)
    if file is None and main is not None and config in shipped_sections.sections().children:
        return Source(main_file, config, main)
    if file is None:
        if main is not None:
            problems.append(_no_config(config, folder.path, main))
        return None
    sections = main if file == main_file else read_sections(file, problems)
    return _checked(file, section if colon else DEFAULT_SECTION, sections, problems)


def _file_beside(folder: EnvFolder, config: str | None, problems: list[Problem]) -> Source | None:
    """Return the settings of an environment without a folder: none, or the file that ``--config`` names."""
    if config is None:
        return Source(None, DEFAULT_SECTION, MappingNode({DEFAULT_SECTION: MappingNode()}))
    name, colon, section = config.rpartition(":")
    file = _file(folder.path, name if colon else config)
    if file is None and config in shipped_sections.sections().children:
        return Source(None, config, MappingNode())
    if file is None:
        problems.append(_no_file(config, folder))
        return None
    return _checked(file, section if colon else DEFAULT_SECTION, read_sections(file, problems), problems)


def read_sections(file: Path, problems: list[Problem]) -> MappingNode | None:
    """Return the sections of a file by name; one that holds keys of a section alone is one, WHOLE_FILE."""
    read = read_yaml(file, problems)
    if read and read.children and read.children.keys() <= {*Config.model_fields, *MERGE_KEYS}:
        return MappingNode({WHOLE_FILE: read}, read.where)
    return read


def layered(source: Source, problems: list[Problem]) -> MappingNode:
    """Merge the file's ``default`` section, what the chosen one inherits, the chosen one, in this order."""
    base = MappingNode({}, shown(source.file) if source.file else "the defaults")
    sections = shipped_sections.beside(source.sections)
    for name in _chosen(source):
        base = merge(base, _with_inherited(sections, name, (), problems))
    return base


def shipped_below(source: Source) -> tuple[str, ...]:
    """Return the sections that :func:`layered` merges and that ship with the framework."""
    sections = shipped_sections.beside(source.sections)
    names = [name for chosen in _chosen(source) for name in _ancestry(sections, chosen, ())]
    return tuple(name for name in dict.fromkeys(names) if name not in source.sections.children)


def _chosen(source: Source) -> list[str]:
    """Return the sections that count, the later one above."""
    names = dict.fromkeys((DEFAULT_SECTION, source.section))
    return [name for name in names if name == source.section or name in source.sections.children]


def _ancestry(sections: MappingNode, name: str, trail: tuple[str, ...]) -> Iterator[str]:
    """Yield the section and all that it inherits, less circles and missing sections."""
    if name in trail or name not in sections.children:
        return
    inherited = as_section(sections.children[name], name, []).children.get("inherited")
    for parent in _parents(inherited, []) if inherited is not None else ():
        yield from _ancestry(sections, parent, (*trail, name))
    yield name


def as_section(node: Node, name: str, problems: list[Problem]) -> MappingNode:
    """Return a section as a mapping; one without content, and blocks without content, count as empty."""
    if isinstance(node, MappingNode):
        return MappingNode({k: _empty_block(k, child) for k, child in node.children.items()}, node.where)
    if node.value is not None:
        problems.append(
            Problem(
                f"section `{name}` is not a mapping",
                node.where,
                "a section holds blocks such as base_config and sac_config",
                "write the blocks indented below the section's name",
            )
        )
    return MappingNode({}, node.where)


def _empty_block(key: str, node: Node) -> Node:
    """Return an empty mapping for a block that is null because all its lines are comments."""
    field = Config.model_fields.get(key)
    is_block = field is not None and isinstance(field.annotation, type)
    return (
        MappingNode({}, node.where)
        if is_block and isinstance(node, ValueNode) and node.value is None
        else node
    )


def _with_inherited(
    sections: MappingNode, name: str, trail: tuple[str, ...], problems: list[Problem]
) -> MappingNode:
    section = as_section(sections.children[name], name, problems)
    inherited = section.children.get("inherited")
    result = MappingNode({}, section.where)
    for parent in _parents(inherited, problems) if inherited is not None else ():
        where = inherited.where if inherited is not None else section.where
        if parent in (*trail, name):
            problems.append(_cycle((*trail, name, parent), where))
        elif parent not in sections.children:
            problems.append(_unknown_parent(parent, name, where, sections))
        else:
            result = merge(result, _with_inherited(sections, parent, (*trail, name), problems))
    return merge(result, section.without("inherited"))


def _parents(node: Node, problems: list[Problem]) -> list[str]:
    value = to_value(node)
    names = [value] if isinstance(value, str) else [] if value is None else value
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return names
    problems.append(
        Problem(
            "`inherited` names no sections",
            node.where,
            "it must be the name of a section, or a list of names",
            "write `inherited: name` or `inherited: [first, second]`",
        )
    )
    return []


def _cycle(trail: tuple[str, ...], where: str) -> Problem:
    return Problem(
        "`inherited` goes in a circle",
        where,
        " → ".join(trail),
        f"remove `{trail[-1]}` from what `{trail[-2]}` inherits, or the other way round",
    )


def _unknown_parent(parent: str, name: str, where: str, sections: MappingNode) -> Problem:
    fix = suggest(parent, [s for s in sections.children if s != name], "other sections")
    return Problem(
        f"unknown section `{parent}`", where, f"`{name}` inherits it, and the file has none such", fix
    )


def _checked(
    file: Path, section: str, sections: MappingNode | None, problems: list[Problem]
) -> Source | None:
    """Return the section of the file; None if the file could not be read or has no such section."""
    if sections is None:
        return None
    names = list(sections.children)
    if section in names:
        return Source(file, section, sections)
    if section == DEFAULT_SECTION and WHOLE_FILE in names:
        return Source(file, WHOLE_FILE, sections)
    name = shown(file)
    if any(name in Config.model_fields for name in names):
        fix = f"write `{DEFAULT_SECTION}:` above everything and indent the rest below it"
        why = f"{name} has blocks at its top level, beside sections"
    else:
        fix = suggest(section, names, "sections")
        why = f"{name} has no section of that name"
    problems.append(Problem(f"unknown section `{section}`", name, why, fix))
    return None


def _roots() -> tuple[Path, ...]:
    here = (Path.cwd() / "envs").resolve()
    return (here,) if here == _PROJECT_ENVS else (here, _PROJECT_ENVS)


def _label(folder: Path, roots: tuple[Path, ...]) -> str:
    for root in roots:
        if folder != root and folder.is_relative_to(root):
            return folder.relative_to(root).as_posix()
    return folder.name


def known_tasks() -> dict[str, Path]:
    """Return task → its config.yaml, of all that lie below ``envs/`` here and in the framework."""
    found: dict[str, Path] = {}
    for root in _roots():
        for file in sorted(root.rglob(CONFIG_FILE)):
            found.setdefault(file.parent.relative_to(root).as_posix(), file)
    return found


def _no_env(env: str, roots: tuple[Path, ...], ids: list[str]) -> Problem:
    known = list(known_tasks())
    close, folder = nearest_task(env, known), folder_of(env, known)
    inside = [name.rpartition("/")[2] for name in known if folder and name.rpartition("/")[0] == folder]
    near = " or ".join(f"`{name}`" for name in [*with_package(env), *([close] if close else []), *ids])
    meant = f"did you mean {near}? " if near else ""
    if inside:
        listed = f"tasks in {folder}: {', '.join(sorted(inside))}"
    else:
        others = "an environment of another package is module:Id, one of your own file.py:Id"
        listed = others if near else f"tasks: {', '.join(known) or 'none'}; {others}"
    exists = next((f for f in (*(root / env for root in roots), Path(env)) if f.is_dir()), None)
    why = f"{shown(exists)} has no {CONFIG_FILE}" if exists else "no folder of that name has a " + CONFIG_FILE
    return Problem(
        f"unknown environment `{env}`",
        "looked in " + ", ".join([*map(shown, roots), "as a path, and among Gymnasium's ids"]),
        why,
        meant + listed,
    )


def _file(folder: Path, name: str) -> Path | None:
    return next((f for f in (folder / name, folder / f"{name}.yaml") if name and f.is_file()), None)


def _no_file(config: str, folder: EnvFolder) -> Problem:
    return Problem(
        f"unknown configuration `{config}`",
        f"--config {config}",
        f"{folder.env_name} has no folder with sections, so -c names a YAML file, and there is no such file",
        "give the path of a file, or FILE:SECTION; or leave out -c and set single keys with -o; "
        f"{_shipped_near(config)}",
    )


def _no_config(config: str, folder: Path, main: MappingNode) -> Problem:
    files = sorted(f.name for f in folder.glob("*.yaml"))
    return Problem(
        f"unknown configuration `{config}`",
        f"--config {config}",
        f"{shown(folder / CONFIG_FILE)} has no such section, and its folder no such file",
        f"{suggest(config, main.children, 'sections')}; files: {', '.join(files)}; {_shipped_near(config)}",
    )


def _shipped_near(config: str) -> str:
    return suggest(config, shipped_sections.sections().children, "sections for every task")
