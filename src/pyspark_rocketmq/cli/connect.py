"""How commands connect to RocketMQ: the options that they share."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeVar, cast

import typer

from pyspark_rocketmq.cli.times import is_time, with_local_zone
from pyspark_rocketmq.errors import OptionError, RocketMQError

if TYPE_CHECKING:
    from pyspark_rocketmq.client.admin import Admin
    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.model import MessageQueue
    from pyspark_rocketmq.options import ClientOptions, Options, SourceOptions

__all__ = ["Group", "Namesrv", "Settings", "Topic", "client_options", "complete_groups", "connect", "pairs"]
__all__ += ["find_start", "is_cluster_given", "source_options", "with_profile"]

O = TypeVar("O", bound="Options")  # noqa: E741 - O for options

Namesrv = Annotated[
    str | None,
    typer.Option("--namesrv", "-n", help="The name servers, 'host:port;host:port'. [$NAMESRV_ADDR]"),
]

Settings = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", help="A client option, such as tls=true; repeatable. Secrets come from "
                 "$ROCKETMQ_ACCESS_KEY and $ROCKETMQ_SECRET_KEY."),
]  # fmt: skip

Host = Annotated[str, typer.Option(help="Address to listen on. Other than loopback requires a token.")]

Port = Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65_535)]

_STARTS: Final = (
    "earliest, latest, group, last:100, a time (2030-01-31T08:00:00, or milliseconds since the epoch), "
    'a time ago (-2h), or JSON {"topic": {"broker": {"queue id": offset}}}'
)
_CLUSTER_NAMES: Final = ("NAMESRV_ADDR", "ROCKETMQ_PROFILE")
_CLUSTER_OPTIONS: Final = ("nameServer", "profile")
_OPERATION_TIMEOUT_MS: Final = 10_000
_COMPLETION_TIMEOUT_MS: Final = 1_000


def complete_profiles(incomplete: str) -> list[str]:
    """Return the profiles with this prefix for shell completion."""
    from pyspark_rocketmq.options.stored.profiles import profile_names

    try:
        return [name for name in profile_names(os.environ) if name.startswith(incomplete)]
    except OptionError:  # an error message would be printed into the command line being typed
        return []


Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help="A cluster of ~/.config/pyspark-rocketmq/config.toml. [$ROCKETMQ_PROFILE]",
        autocompletion=complete_profiles,
    ),
]


def complete_topics(incomplete: str) -> list[str]:
    """Return the topics with this prefix for shell completion, if the environment's cluster answers soon."""
    return _complete(incomplete, lambda admin: admin.topics())


def with_profile(command: Callable[..., object]) -> Callable[..., object]:
    """Give a command that connects the option ``--profile NAME``, which is short for ``-o profile=NAME``."""
    signature = inspect.signature(command, eval_str=True)
    if not {"namesrv", "option"} <= signature.parameters.keys() or "profile" in signature.parameters:
        return command

    @functools.wraps(command)
    def run(*args: object, profile: str | None = None, **given: object) -> object:
        if profile is not None:
            settings = cast("Sequence[str] | None", given["option"])
            given["option"] = [*(settings or ()), f"profile={profile}"]
        return command(*args, **given)

    added = inspect.Parameter("profile", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Profile)
    parameters = list(signature.parameters.values())
    at = list(signature.parameters).index("namesrv") + 1
    parameters.insert(at, added.replace(kind=parameters[at - 1].kind))
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def is_cluster_given(namesrv: str | None, settings: Sequence[str] | None) -> bool:
    """Return whether a command, or the environment, says which cluster to use."""
    if namesrv is not None or any(os.environ.get(name, "").strip() for name in _CLUSTER_NAMES):
        return True
    if not settings:
        return False
    from pyspark_rocketmq.options import ClientOptions, list_spellings

    spellings = list_spellings(ClientOptions, _CLUSTER_OPTIONS)
    return any(name.lower() in spellings for name in pairs(settings))


def complete_groups(incomplete: str) -> list[str]:
    """Return the consumer groups with this prefix for shell completion, as `complete_topics`."""
    return _complete(incomplete, lambda admin: tuple(admin.groups(on_away=lambda *_: None)))


Topic = Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topics)]
Group = Annotated[str, typer.Argument(help="The consumer group.", autocompletion=complete_groups)]


def client_options(namesrv: str | None, settings: Sequence[str] | None) -> ClientOptions:
    """Return the options of a client.

    Raises
    ------
    OptionError
    """
    from pyspark_rocketmq.options import ClientOptions

    return _parse_given(ClientOptions, namesrv, pairs(settings))


def connect(namesrv: str | None, settings: Sequence[str] | None) -> Client:
    """Open a client for one command. Its short time-outs report problems in seconds."""
    from pyspark_rocketmq.client.client import Client

    return Client(client_options(namesrv, settings), operation_timeout_ms=_OPERATION_TIMEOUT_MS)


def source_options(
    namesrv: str | None,
    settings: Sequence[str] | None,
    *,
    topic: str,
    group: str | None,
    start: str,
    name: str,
    also: str = "",
) -> SourceOptions:
    """Return the options of a reader that starts there. It accepts what a query accepts, including times.

    Parameters
    ----------
    namesrv, settings, topic, group
    start : str
    name : str
        The command's option that gave the start.
    also : str
        What the option takes besides, for the error.

    Raises
    ------
    OptionError
        The start or another option is malformed.
    """
    from pyspark_rocketmq.options import SourceOptions
    from pyspark_rocketmq.options.text.policies import OFFSETS

    where = "startingTimestamp" if is_time(start) else "startingOffsets"
    if where == "startingOffsets":
        try:
            OFFSETS.parse(start)
        except ValueError as error:
            detail = f": {error}" if start.lstrip().startswith("{") else ""
            raise OptionError(f"{name} takes {also}{_STARTS}{detail}", given=start) from None
    given = {"topic": topic, "consumerGroup": group, where: with_local_zone(start)}
    return _parse_given(SourceOptions, namesrv, {**pairs(settings), **given})


def find_start(
    client: Client, options: SourceOptions, *, only: Sequence[MessageQueue] | None = None
) -> dict[MessageQueue, int]:
    """Return the offset at which a reader with these options starts in each queue, or only in these.

    The brokers of other queues are not asked.

    Raises
    ------
    OptionError
        The start names a queue that does not exist.
    RocketMQError
    """
    from pyspark_rocketmq.offsets.offset_lookup import PlanningClient, resolve_offsets
    from pyspark_rocketmq.offsets.queue_lookup import queues_to_read
    from pyspark_rocketmq.planning.offset_resolution import check_listed

    policy = options.start_policy(streaming=True)
    planner = PlanningClient(options.client)
    try:
        queues = queues_to_read(planner, options)
        check_listed(policy, queues)
        wanted = queues if only is None else [queue for queue in queues if queue in only]
        return resolve_offsets(planner, policy, wanted, options, start_time_ms=client.clock.now_ms())
    finally:
        planner.close()


def pairs(settings: Sequence[str] | None) -> dict[str, str]:
    """Split ``name=value`` texts.

    Raises
    ------
    OptionError
        A text is malformed, or a name has two values.
    """
    found: dict[str, str] = {}
    for setting in settings or ():
        name, sign, value = setting.partition("=")
        if not name or not sign:
            raise OptionError(f"{setting!r} is not name=value")
        if found.setdefault(name, value) != value:  # which may be secret
            raise OptionError(f"{name} is given twice, with different values: give it once")
    return found


def _parse_given(cls: type[O], namesrv: str | None, given: Mapping[str, str | None]) -> O:
    """Parse options. The name servers have another name here than in Spark's options."""
    from pyspark_rocketmq.options import parse_options

    if namesrv is not None and given.get("nameServer", namesrv) != namesrv:
        raise OptionError("--namesrv and -o nameServer have different values: give one of them")
    try:
        return parse_options(cls, {**given, **({} if namesrv is None else {"nameServer": namesrv})})
    except OptionError as error:
        if error.facts.get("option") != "nameServer":
            raise
        value = error.facts.get("value")
        what = "no name server was given" if value is None else f"{value} names no name server"
        raise OptionError(
            f"{what}: set --namesrv or $NAMESRV_ADDR to host:port, or to several as 'host:port;host:port'",
            option="nameServer",
        ) from None


def _complete(incomplete: str, names: Callable[[Admin], Sequence[str]]) -> list[str]:
    if not is_cluster_given(None, None):
        return []
    from pyspark_rocketmq.client.admin import Admin
    from pyspark_rocketmq.client.client import Client

    timeouts = [f"{name}={_COMPLETION_TIMEOUT_MS}" for name in ("connectTimeoutMs", "requestTimeoutMs")]
    try:
        options = client_options(None, timeouts)
        with Client(options, operation_timeout_ms=_COMPLETION_TIMEOUT_MS) as client:
            return [name for name in names(Admin(client)) if name.startswith(incomplete)]
    except RocketMQError:  # an error message would be printed into the command line being typed
        return []
