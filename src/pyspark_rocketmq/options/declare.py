"""How options are declared: every option is one field of a frozen dataclass.

The declaration is the only place that defines an option's name, aliases, type, default and description. The
parser, the error messages and the reference in the documentation read it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

from pyspark_rocketmq.errors import OptionError

__all__ = [
    "GROUP_KEY",
    "OPTION_KEY",
    "CompatibilityWarning",
    "Kind",
    "Option",
    "OptionRow",
    "Options",
    "Where",
    "given_value",
    "group",
    "list_declared",
    "option",
    "option_reference",
    "option_values",
    "with_defaults",
]

Where: TypeAlias = Literal["read", "readStream", "write", "writeStream"]
"""The call that received the options."""

T = TypeVar("T")

OPTION_KEY: Final = "pyspark_rocketmq.option"
GROUP_KEY: Final = "pyspark_rocketmq.group"
_SHOWN_CHARACTERS: Final = 300


class CompatibilityWarning(UserWarning):
    """Options of another connector were set that have no effect here, or were translated."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type of values: what is expected, an example, and the parser.

    Parameters
    ----------
    label : str
        What is expected: the end of the sentence "expected ...".
    example : str
        A value that parses.
    parse : Callable[[str], T]
        Converts the text to the value, or raises a ValueError that says what is invalid.
    """

    label: str
    example: str
    parse: Callable[[str], T]


@dataclass(frozen=True, slots=True)
class Option:
    """One declared option; see `option`."""

    name: str
    kind: Kind[Any]
    doc: str
    aliases: tuple[str, ...]
    env: str | None
    secret: bool
    only: tuple[Where, ...]
    default_text: str
    holds: tuple[str, ...] = ()
    since: str | None = None
    ends: bool = False

    @property
    def spellings(self) -> tuple[str, ...]:
        """The name and its aliases."""
        return (self.name, *self.aliases)

    def parse(self, text: str, spelling: str) -> Any:
        """Parse the text, or raise an OptionError that never contains a secret.

        Raises
        ------
        OptionError
            The text is not a value of the option's kind.
        """
        try:
            return self.kind.parse(text)
        except ValueError as error:
            hint = f"expected {self.kind.label}, for example {self.name}={self.kind.example}"
            if self.secret:
                raise OptionError(f"option {spelling} is malformed: {hint}", option=spelling) from None
            detail = str(error)
            problem = f"is malformed: {detail}; {hint}" if detail else f"is malformed: {hint}"
            raise OptionError(f"option {spelling} {problem}", option=spelling, value=_clip(text)) from None


def option(
    name: str,
    kind: Kind[Any],
    *,
    doc: str,
    example: str | None = None,
    default: Any = MISSING,
    default_text: str | None = None,
    aliases: tuple[str, ...] = (),
    env: str | None = None,
    secret: bool = False,
    only: tuple[Where, ...] = (),
    holds: tuple[str, ...] = (),
    since: str | None = None,
    ends: bool = False,
) -> Any:
    """Declare an option as a dataclass field.

    Parameters
    ----------
    name : str
        The option's name in camelCase.
    kind : Kind
        Its type of values.
    doc : str
        One or two sentences for the reference.
    example : str, optional
        A value that fits this option, if the kind's example does not.
    default : Any
        The value if the option is not set. Without a default, the option is required.
    default_text : str, optional
        The default as the reference shows it, if the value itself is not readable.
    aliases : tuple of str
        Other names. Names are not case-sensitive: Spark passes them in lower case.
    env : str, optional
        The environment variable that is read if the option is not set.
    secret : bool
        The value is never shown: not in ``repr``, not in an error.
    only : tuple of str
        The calls in which the option has an effect; all if empty.
    holds : tuple of str
        The value is the path of a file that may set these options. They override the environment's.
    since : str, optional
        The first Spark release in which the option has an effect, such as "4.2", if not all have it.
    ends : bool
        Says where a read ends: it is refused, not ignored, in a call that reads without an end.
    """
    if default_text is None:
        default_text = "required" if default is MISSING else _show(default)
    if example is not None:
        kind = dataclasses.replace(kind, example=example)
    declared = Option(name, kind, doc, aliases, env, secret, only, default_text, holds, since, ends)
    return field(default=default, repr=not secret, metadata={OPTION_KEY: declared})


def group(cls: type[Options], *, has_defaults: bool = False) -> Any:
    """Declare a field that holds another option class, whose options are added to the class's.

    Parameters
    ----------
    cls : type
    has_defaults : bool
        Whether all its options have defaults, so that the field may be omitted.
    """
    if has_defaults:
        return field(default_factory=cls, metadata={GROUP_KEY: cls})
    return field(metadata={GROUP_KEY: cls})


class Options:
    """Base of the option classes.

    ``IGNORED``: the keys that Spark adds, in lower case. ``COMPATIBILITY``: keys of other connectors that
    have no counterpart here, with the reason; they are accepted with one warning. ``TRANSLATED``: aliases, in
    lower case, whose values are translated to the option's values; a warning says what was translated.
    ``ELSEWHERE``: keys of Spark's Kafka source and sink, in lower case, and the option to use instead.
    """

    __slots__ = ()

    IGNORED: ClassVar[frozenset[str]] = frozenset()
    COMPATIBILITY: ClassVar[Mapping[str, str]] = {}
    TRANSLATED: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    ELSEWHERE: ClassVar[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option as a row of the reference."""

    name: str
    aliases: tuple[str, ...]
    type: str
    example: str
    default: str
    env: str | None
    secret: bool
    only: tuple[str, ...]
    since: str | None
    doc: str


def option_reference(cls: type[Options]) -> tuple[OptionRow, ...]:
    """Return the reference of an option class, in the order of declaration."""
    return tuple(
        OptionRow(
            *(o.name, o.aliases, o.kind.label, o.kind.example, o.default_text),
            *(o.env, o.secret, o.only, o.since, o.doc),
        )
        for o in list_declared(cls)
    )


def option_values(options: Options) -> Iterator[tuple[Option, Any]]:
    """Yield every option with its value; secret ones too."""
    for declared in dataclasses.fields(options):  # type: ignore[arg-type]  # every subclass is a dataclass
        value = getattr(options, declared.name)
        if GROUP_KEY in declared.metadata:
            yield from option_values(value)
        else:
            yield declared.metadata[OPTION_KEY], value


def list_declared(cls: type[Options]) -> tuple[Option, ...]:
    """Return the options of a class and of its groups."""
    return tuple(_walk(cls))


def list_spellings(cls: type[Options], names: Collection[str] | None = None) -> frozenset[str]:
    """Return the spellings of a class's options, or of those with these names, in lower case."""
    return frozenset(
        spelling.lower()
        for o in list_declared(cls)
        if names is None or o.name in names
        for spelling in o.spellings
    )


def given_value(cls: type[Options], given: Mapping[str, str], name: str) -> str | None:
    """Return the text that a map has for an option, under any of its spellings in any case."""
    spellings = list_spellings(cls, {name})
    return next((text for key, text in given.items() if key.lower() in spellings), None)


def with_defaults(
    cls: type[Options], given: Mapping[str, str], defaults: Mapping[str, str]
) -> dict[str, str]:
    """Return a map of options, and the defaults of those that it has under none of their spellings."""
    missing = {name: text for name, text in defaults.items() if given_value(cls, given, name) is None}
    return {**missing, **given}


def _walk(cls: type[Options]) -> Iterator[Option]:
    for declared in dataclasses.fields(cls):  # type: ignore[arg-type]  # every subclass is a dataclass
        if GROUP_KEY in declared.metadata:
            yield from _walk(declared.metadata[GROUP_KEY])
        else:
            yield declared.metadata[OPTION_KEY]


def _clip(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


def _show(default: Any) -> str:
    match default:
        case None | ():
            return "none"
        case bool():
            return str(default).lower()
        case _:
            return str(default)
