"""``--demos``: the contents of recordings, and whether an agent of the task can learn from them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from algorithm.app.cli.notices import notices
from algorithm.app.cli.train import TrainOptions
from algorithm.app.cli.train_flags import task_command
from algorithm.app.console.output import open_console
from algorithm.config.loader import LoadedConfig
from algorithm.config.yaml_io import inline
from algorithm.core.errors import EnvError, UsageError
from algorithm.core.extras import extra
from algorithm.core.wording import counted
from algorithm.demos.contents import read_contents
from algorithm.demos.sources import find_sources
from algorithm.run.context import RunContext
from algorithm.run.experience.faults import Faults


def show_demos(options: TrainOptions, loaded: LoadedConfig) -> int:
    """Show the contents of files, folders, patterns and data sets; return 0 if all fit the environment.

    Paths are relative to the current folder, or else the task's. A Unity task without a build is not
    compared. Raises UsageError for a path without recordings, and as a training
    does for the environment.
    """
    sources = find_sources(options.demos, Path.cwd(), loaded.env_dir, key="--demos")
    with ExitStack() as stack:
        console = stack.enter_context(open_console(quiet=options.quiet))
        for notice in notices(options, loaded.config):
            console.warn(notice)
        context = RunContext(loaded=loaded, device="cpu", faults=Faults(console), stack=stack)
        doubt = _no_build(loaded)
        specs = {} if doubt else context.env("evaluate").specs
        sources_read = [read_contents(source, specs, doubt) for source in sources]
        console.start([(contents.source.name, contents.rows()) for contents in sources_read])
        misfits = [
            f"{contents.source.name}: {contents.misfit}" for contents in sources_read if contents.misfit
        ]
        episodes, steps = (sum(map(of, (c.lengths for c in sources_read))) for of in (len, sum))
        rows = [
            (
                "found",
                f"{counted(episodes, 'episode')}, {counted(steps, 'step')} in "
                f"{counted(len(sources_read), 'source')}",
            )
        ]
        rows.insert(0, ("fit", f"no: {misfits[0]}" if misfits else doubt or "yes"))
        paths = [contents.source.where for contents in sources_read]
        named = f"demonstrations.path={inline(paths if len(paths) > 1 else paths[0])}"
        console.finish(
            rows,
            [] if misfits or doubt else [("train", task_command(options, "-o", named))],
            doubtful=bool(misfits),
        )
    return 2 if misfits else 0  # the exit code of a training with these recordings


def _no_build(loaded: LoadedConfig) -> str:
    """Return the reason why recordings cannot be compared with a Unity task; empty if they can be."""
    base = loaded.config.base_config
    if base.kind.player and not base.unity_args.editor:
        try:
            extra("find_build")(base.unity_args.build_path, loaded.env_dir)
        except (UsageError, EnvError) as error:
            return f"not compared: {error.what}"
    return ""
