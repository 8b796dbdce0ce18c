"""Groups of commands: imported when they run, so that ``--version`` and completion load no client.

A name that does not exist is answered with the name that was probably meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from pyspark_rocketmq.cli.connect import with_profile
from pyspark_rocketmq.cli.near_names import near_commands

__all__ = ["CLICK_ERROR", "CommandGroup", "Home", "LazyGroup", "load_command"]

CLICK_ERROR: Final[type[Any]] = typer.BadParameter.__mro__[2]
"""The base of click's errors: of the click in typer or of the installed one, depending on typer's release."""

_MARKUP: Final[Any] = "markdown"


class CommandGroup(TyperGroup):
    """A group that knows which command a wrong name means, and completes without converting values."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return a context with the parsed arguments."""
        if extra.get("resilient_parsing"):
            return _completion_context(self, info_name, args, parent)
        return super().make_context(info_name, args, parent, **extra)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command, or raise a usage error that names near commands."""
        path = tuple(ctx.command_path.split())
        try:
            name, command, rest = super().resolve_command(ctx, args)
            return name, _Completed(command) if ctx.resilient_parsing and command else command, rest
        except CLICK_ERROR as error:
            if error.message.startswith("No such command"):
                where = f" in {ctx.command_path}" if len(path) > 1 else ""
                error.message = f"No such command {args[0]!r}{where}" + _meant(path, args[0], self, ctx)
            raise


@dataclass(frozen=True, slots=True)
class Home:
    """Where a command is defined.

    Parameters
    ----------
    module : str
        The module within this package.
    attribute : str
        The function of a command, or the `typer.Typer` of a group.
    summary : str
        The first line of its help, for lists of commands.
    examples : str, optional
        The attribute with the examples of a function.
    """

    module: str
    attribute: str
    summary: str
    examples: str | None = None


class LazyGroup(CommandGroup):
    """A group of commands of which only names and summaries are known until one is used."""

    homes: ClassVar[Mapping[str, Home]] = {}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands."""
        return list(self.homes)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - click's signature
        """Return a command that is imported when it is used."""
        home = self.homes.get(cmd_name)
        return None if home is None else _Unloaded(cmd_name, home)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command. `topics list` is an error that names `topics`."""
        found = super().resolve_command(ctx, args)
        home = self.homes.get(args[0])
        if home is not None and home.examples is not None and len(args) > 1:
            near = near_commands((args[0],), args[1], ())
            if near:
                ctx.fail(f"No such command {' '.join(args[:2])!r}" + _question(ctx.command_path, near))
        return found


@dataclass(frozen=True, slots=True)
class _Completed:
    """A command of which only the arguments are completed."""

    command: Any

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **_extra: Any) -> Any:
        command = self.command.load() if isinstance(self.command, _Unloaded) else self.command
        return _completion_context(command, info_name, args, parent)


def _completion_context(command: Any, info_name: str | None, args: list[str], parent: Any) -> Any:
    """Return a context with the arguments as they were typed.

    Typer converts values by pydantic, whose import takes longer than everything else that completion needs.
    """
    context = command.context_class(command, info_name=info_name, parent=parent, resilient_parsing=True)
    with context.scope(cleanup=False):
        given, context.args, _order = command.make_parser(context).parse_args(args=list(args))
        for param in command.get_params(context):
            context.params[param.name], source = param.consume_value(context, given)
            context.set_parameter_source(param.name, source)
        context._opt_prefixes.update(("-", "--"))  # noqa: SLF001 - as click's parse_args, which also converts
    return context


class _Unloaded(TyperCommand):
    """Stands in lists for a command, and loads it for anything else."""

    def __init__(self, name: str, home: Home) -> None:
        super().__init__(name, help=home.summary, rich_markup_mode=_MARKUP)
        self._home = home

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return a context of the loaded command, which click then runs."""
        return self.load().make_context(info_name, args, parent, **extra)

    def load(self) -> Any:
        """Import the command."""
        return load_command(str(self.name), self._home)


def load_command(name: str, home: Home) -> Any:
    """Import a command and return it as click's."""
    module = import_module(f"{__package__}.{home.module}")
    found = getattr(module, home.attribute)
    holder = typer.Typer(add_completion=False, rich_markup_mode=_MARKUP)
    if isinstance(found, typer.Typer):
        for inner in found.registered_commands:
            inner.callback = inner.callback and with_profile(inner.callback)
        holder.add_typer(found, name=name)
    else:
        holder.command(name, epilog=getattr(module, home.examples) if home.examples else None)(
            with_profile(found)
        )
    return get_group(holder).commands[name]


def _meant(path: tuple[str, ...], word: str, group: TyperGroup, ctx: Any) -> str:
    near = near_commands(path[1:], word, group.list_commands(ctx))
    return _question(path[0], near) if near else f". It has {', '.join(group.list_commands(ctx))}"


def _question(program: str, near: tuple[str, ...]) -> str:
    return ". Did you mean " + " or ".join(f"`{program} {name}`" for name in near) + "?"
