"""How options are declared and parsed: every option is one field of a frozen dataclass.

The declaration is the only place that defines an option's name, aliases, type, default and description. The
parser, the error messages and the reference in the documentation read it.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model.names import suggest_names
from pyspark_rocketmq.options.files import read_values

__all__ = [
    "CompatibilityWarning",
    "Kind",
    "Option",
    "OptionRow",
    "Options",
    "Where",
    "group",
    "option",
    "option_reference",
    "option_values",
    "parse_options",
]

Where: TypeAlias = Literal["read", "readStream", "write", "writeStream"]
"""The call that received the options."""

T = TypeVar("T")
O = TypeVar("O", bound="Options")  # noqa: E741 - O for options, as T for any type

_OPTION_KEY: Final = "pyspark_rocketmq.option"
_GROUP_KEY: Final = "pyspark_rocketmq.group"
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
    """
    if default_text is None:
        default_text = "required" if default is MISSING else _show(default)
    if example is not None:
        kind = dataclasses.replace(kind, example=example)
    declared = Option(name, kind, doc, aliases, env, secret, only, default_text, holds, since)
    return field(default=default, repr=not secret, metadata={_OPTION_KEY: declared})


def group(cls: type[Options], *, has_defaults: bool = False) -> Any:
    """Declare a field that holds another option class, whose options are added to the class's.

    Parameters
    ----------
    cls : type
    has_defaults : bool
        Whether all its options have defaults, so that the field may be omitted.
    """
    if has_defaults:
        return field(default_factory=cls, metadata={_GROUP_KEY: cls})
    return field(metadata={_GROUP_KEY: cls})


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
        for o in _list_declared(cls)
    )


def option_values(options: Options) -> Iterator[tuple[Option, Any]]:
    """Yield every option with its value; secret ones too."""
    for declared in dataclasses.fields(options):  # type: ignore[arg-type]  # every subclass is a dataclass
        value = getattr(options, declared.name)
        if _GROUP_KEY in declared.metadata:
            yield from option_values(value)
        else:
            yield declared.metadata[_OPTION_KEY], value


def parse_options(
    cls: type[O],
    given: Mapping[str, Any],
    *,
    where: Where | None = None,
    environ: Mapping[str, str] | None = None,
) -> O:
    """Parse a map of options.

    Parameters
    ----------
    cls : type
        The option class.
    given : Mapping
        Option names, in any case, to values: str, number or bool. None means "not set".
    where : str, optional
        The call that received the options. None omits the check that they have an effect there.
    environ : Mapping, optional
        The environment; by default that of the process.

    Returns
    -------
    cls
        The checked values.

    Raises
    ------
    OptionError
        An option is unknown, malformed, missing, set twice with different values, or contradicts another.
    """
    options = _list_declared(cls)
    texts, compatible, became = _sort_out(cls, options, given)
    misplaced = [o.name for o in options if o.name in texts and where and o.only and where not in o.only]
    _refuse_or_warn(cls, where, misplaced, compatible)
    if became:
        warnings.warn("; ".join(became), CompatibilityWarning, stacklevel=2)
    environ = os.environ if environ is None else environ
    return _build(cls, texts | _from_files(options, texts, environ), environ)


def _from_files(
    options: tuple[Option, ...], texts: Mapping[str, tuple[str, str]], environ: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Read the options that are set in files. Options set directly override a file of the environment.

    Raises
    ------
    OptionError
        An option is set both directly and in the file.
    """
    found: dict[str, tuple[str, str]] = {}
    for o in options:
        path = texts[o.name][0] if o.name in texts else environ.get(o.env or "", "").strip()
        beside = [name for name in o.holds if name in texts]
        if not o.holds or not path or (beside and o.name not in texts):
            continue
        if beside:
            raise OptionError(f"{beside[0]} and {o.name} are both given: keep one of them", option=o.name)
        values = read_values(path, o.holds, option=o.name)
        found |= {name: (value, f"{name} (from {o.name})") for name, value in values.items()}
    return found


def _list_declared(cls: type[Options]) -> tuple[Option, ...]:
    """Return the options of a class and of its groups."""
    return tuple(_walk(cls))


def _walk(cls: type[Options]) -> Iterator[Option]:
    for declared in dataclasses.fields(cls):  # type: ignore[arg-type]  # every subclass is a dataclass
        if _GROUP_KEY in declared.metadata:
            yield from _walk(declared.metadata[_GROUP_KEY])
        else:
            yield declared.metadata[_OPTION_KEY]


def _sort_out(
    cls: type[Options], options: tuple[Option, ...], given: Mapping[str, Any]
) -> tuple[dict[str, tuple[str, str]], list[str], list[str]]:
    """Return (option name -> (text, spelling)), the keys without effect, and the translated ones."""
    by_key = {spelling.lower(): (o, spelling) for o in options for spelling in o.spellings}
    compatibility = {key.lower(): key for key in cls.COMPATIBILITY}
    texts: dict[str, tuple[str, str]] = {}
    compatible: list[str] = []
    became: list[str] = []
    for key, value in given.items():
        lowered = key.lower()
        if value is None or lowered in cls.IGNORED:
            continue
        if lowered in compatibility:
            compatible.append(compatibility[lowered])
            continue
        if lowered not in by_key:
            raise _unknown(key, options, cls.ELSEWHERE)
        o, spelling = by_key[lowered]
        text = (str(value).lower() if isinstance(value, bool) else str(value)).strip()
        if (here := cls.TRANSLATED.get(lowered, {}).get(text.lower())) is not None:
            became.append(f"{key}={text} became {o.name}={here}")
            text = here
        if o.name in texts and texts[o.name][0] != text:
            raise OptionError(
                f"options {texts[o.name][1]} and {spelling} are the same option with different values: "
                f"give only {o.name}"
            )
        texts[o.name] = (text, spelling)
    return texts, compatible, became


def _unknown(key: str, options: tuple[Option, ...], elsewhere: Mapping[str, str]) -> OptionError:
    instead = next((o for o in options if o.name == elsewhere.get(key.lower())), None)
    if instead is not None:
        return OptionError(
            f"unknown option {key}: that is Kafka's name; here it is {instead.name} ({instead.kind.label}), "
            f"for example {instead.name}={instead.kind.example}",
            option=key,
        )
    guess = suggest_names(key, (spelling for o in options for spelling in o.spellings))
    names = ", ".join(sorted((o.name for o in options), key=str.lower))
    hint = f"{guess} The options" if guess else "The options"
    return OptionError(f"unknown option {key}: {hint} are: {names}", option=key)


def _refuse_or_warn(
    cls: type[Options], where: Where | None, misplaced: list[str], compatible: list[str]
) -> None:
    """Reject what would change the meaning of the result, warn once of what has no effect."""
    fatal = [o.name for o in _list_declared(cls) if o.name in misplaced and o.only == ("read",)]
    if fatal:
        raise OptionError(
            f"{', '.join(fatal)} bounds a batch read and means nothing for {where}: "
            "a stream has no end (use trigger(availableNow=True) to stop at what exists now)",
            option=fatal[0],
        )
    reasons = [f"{name} (means nothing for {where})" for name in misplaced]
    reasons += [f"{name} ({cls.COMPATIBILITY[name]})" for name in sorted(compatible)]
    if reasons:
        warnings.warn(f"options without effect: {'; '.join(reasons)}", CompatibilityWarning, stacklevel=4)


def _build(cls: type[O], texts: Mapping[str, tuple[str, str]], environ: Mapping[str, str]) -> O:
    values: dict[str, Any] = {}
    for declared in dataclasses.fields(cls):  # type: ignore[arg-type]  # every subclass is a dataclass
        if _GROUP_KEY in declared.metadata:
            values[declared.name] = _build(declared.metadata[_GROUP_KEY], texts, environ)
            continue
        o: Option = declared.metadata[_OPTION_KEY]
        if o.name in texts:
            values[declared.name] = o.parse(*texts[o.name])
        elif o.env and environ.get(o.env, "").strip():
            values[declared.name] = o.parse(environ[o.env].strip(), f"{o.name} (from ${o.env})")
        elif declared.default is MISSING:
            elsewhere = f" (or set the environment variable {o.env})" if o.env else ""
            wanted = f"{o.kind.label}, for example {o.name}={o.kind.example}"
            raise OptionError(f"option {o.name} is required: {wanted}{elsewhere}", option=o.name)
    return cls(**values)


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
