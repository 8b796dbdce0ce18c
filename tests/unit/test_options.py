from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import (
    Ago,
    AtOffsets,
    AtTimestamp,
    Earliest,
    GroupOffsets,
    LastMessages,
    Latest,
    MessageQueue,
    MessageSelector,
    StartPolicy,
)
from pyspark_rocketmq.options import (
    BodyAs,
    ClientOptions,
    CompatibilityWarning,
    DirectOptions,
    EventTime,
    JobOptions,
    Options,
    ReceiverOptions,
    SinkOptions,
    SourceOptions,
    TableOptions,
    TimestampStrategy,
    Where,
    option_reference,
    parse_direct_options,
    parse_options,
)
from pyspark_rocketmq.options.declare import list_declared

BASE = {"nameServer": "127.0.0.1:9876", "topic": "orders"}
A0 = MessageQueue("orders", "broker-a", 0)
A1 = MessageQueue("orders", "broker-a", 1)
SECRET = "hunter2-unguessable"


def source(
    extra: Mapping[str, Any] | None = None, /, *, where: Where | None = "readStream", **more: Any
) -> SourceOptions:
    return parse_options(SourceOptions, {**BASE, **(extra or {}), **more}, where=where, environ={})


# --- the mechanism --------------------------------------------------------------------------


def test_names_compare_without_regard_to_case() -> None:
    found = parse_options(SourceOptions, {"nameserver": "h:1", "TOPIC": "orders"}, environ={})
    assert found.client.name_servers == ("h:1",)
    assert found.topics == ("orders",)


def test_values_may_be_numbers_and_booleans_and_none_is_absent() -> None:
    found = source(pullBatchSize=7, failOnDataLoss=False, consumerGroup=None)
    assert (found.pull_batch_size, found.fail_on_data_loss, found.consumer_group) == (7, False, None)


@pytest.mark.parametrize(
    ("given", "guess"),
    [
        ("startingOffset", "startingOffsets"),
        ("fail_on_data_loss", "failOnDataLoss"),
        ("namesrvaddress", "nameServerAddress"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
    ],
)
def test_an_unknown_option_names_the_nearest_one_and_the_list(given: str, guess: str) -> None:
    with pytest.raises(
        OptionError, match=rf"unknown option {given}: did you mean .*{guess}.*The options are: "
    ) as caught:
        source({given: SECRET})
    assert SECRET not in str(caught.value)


def test_an_option_of_kafka_s_source_names_the_one_here() -> None:
    with pytest.raises(OptionError, match=r"that is Kafka's name; here it is consumerGroup") as caught:
        source({"kafka.group.id": "g"})
    assert caught.value.facts == {"option": "kafka.group.id"}


def test_an_option_of_the_other_side_says_so() -> None:
    with pytest.raises(OptionError, match=r"^unknown option createTopic: that is an option of writes, and"):
        source(createTopic="true")
    with pytest.raises(
        OptionError, match=r"^unknown option startingoffsets: that is an option of reads, and"
    ):
        parse_options(SinkOptions, BASE | {"startingoffsets": "earliest"}, environ={})


@pytest.mark.parametrize("name", ["option.nameserver", "OPTION.topic"])
def test_the_options_of_a_table_in_sparks_catalog_are_an_error_that_says_what_to_use(name: str) -> None:
    with pytest.raises(OptionError, match=r"does not keep the options of a table: .*CREATE TEMPORARY VIEW"):
        parse_options(SourceOptions, {name: "x"}, environ={})


def test_the_list_of_options_is_in_the_order_of_a_dictionary() -> None:
    with pytest.raises(OptionError, match="unknown option zzz: The options are: ") as caught:
        parse_options(SinkOptions, {"zzz": "1"}, environ={})
    assert caught.value.facts == {"option": "zzz"}
    listed = str(caught.value).partition("are: ")[2].partition(" [")[0].split(", ")
    assert listed == sorted((each.name for each in list_declared(SinkOptions)), key=str.lower)


def test_what_is_left_out_ends_nothing() -> None:
    with pytest.warns(CompatibilityWarning, match="vipChannel"):
        found = source({"consumerGroup": None, "vipChannel": "true", "pullBatchSize": 7})
    assert found.pull_batch_size == 7


def test_a_boolean_and_its_text_agree() -> None:
    assert source({"tls": True, "tls.enable": "true"}).client.tls


def test_a_far_off_option_gets_the_list_only() -> None:
    with pytest.raises(OptionError, match=r"unknown option zzz: The options are: accessKey, assign, "):
        source(zzz="1")


ALL = (ClientOptions, SourceOptions, SinkOptions, DirectOptions, ReceiverOptions, TableOptions, JobOptions)


@pytest.mark.parametrize(
    ("cls", "name", "alias"),
    [(cls, each.name, alias) for cls in ALL for each in list_declared(cls) for alias in each.aliases],
)
def test_an_alias_sets_the_option_itself(cls: type[Options], name: str, alias: str) -> None:
    declared = {each.name: each for each in list_declared(cls)}
    required = {"nameServer": "127.0.0.1:9876", "topic": "orders", "consumerGroup": "g"}
    given = {key: text for key, text in required.items() if key in declared and key != name}

    def parsed(**option: str) -> Options | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CompatibilityWarning)
            try:
                return parse_options(cls, given | option, environ={})
            except OptionError:
                return None

    values = [declared[name].kind.example, "1", "earliest", "batch"]  # the first one may be the default
    found = [(parsed(**{alias: value}), parsed(**{name: value})) for value in values]
    assert all(by_alias == by_name for by_alias, by_name in found)
    assert any(by_alias not in (None, parsed()) for by_alias, _ in found), "no value of it has an effect"


def test_aliases_of_what_is_required_are_enough() -> None:
    found = parse_options(
        SourceOptions, {"namesrvAddr": "h:1", "topics": "a,b", "consumer.group": "g"}, environ={}
    )
    assert (found.client.name_servers, found.topics, found.consumer_group) == (("h:1",), ("a", "b"), "g")


def test_the_same_option_twice_is_fine_while_the_values_agree() -> None:
    assert source(topics="orders", subscribe="orders").topics == ("orders",)
    with pytest.raises(
        OptionError, match="topic and topics are the same option with different values"
    ) as caught:
        source(topics="payments")
    assert "payments" not in str(caught.value), "it could be a secret"


def test_every_spelling_is_unambiguous() -> None:
    spellings = [s.lower() for declared in list_declared(SourceOptions) for s in declared.spellings]
    spellings += [key.lower() for key in SourceOptions.COMPATIBILITY]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize("cls", [SourceOptions, SinkOptions])
@pytest.mark.parametrize("key", ["path", "paths"])
def test_a_path_is_an_error(cls: type[Options], key: str) -> None:
    """It was ignored: ``load("payments")`` and ``save("payments")`` took the topic of the option."""
    with pytest.raises(OptionError, match="a topic has no path: name it in the option topic"):
        parse_options(cls, {"nameServer": "a:1", "topic": "orders", key: "payments"})


def test_a_required_option_says_how_to_give_it() -> None:
    with pytest.raises(
        OptionError, match=r"option nameServer is required: .*nameServer=10\.0\.0\.1:9876.*NAMESRV_ADDR"
    ):
        parse_options(SourceOptions, {"topic": "t"}, environ={})
    with pytest.raises(OptionError, match=r"for example topic=orders,payments \[option=topic\]$"):
        parse_options(ReceiverOptions, {"nameServer": "h:1", "consumerGroup": "g"}, environ={})


def test_a_wrong_default_is_told_by_its_name() -> None:
    with pytest.raises(OptionError, match="option requestTimeoutMs is malformed"):
        parse_options(ClientOptions, {"nameServer": "h:1"}, environ={}, defaults={"requestTimeoutMs": "x"})


def test_the_environment_fills_in_but_never_overrides() -> None:
    environ = {"NAMESRV_ADDR": "env:1;env:2"}
    assert parse_options(ClientOptions, {}, environ=environ).name_servers == ("env:1", "env:2")
    assert parse_options(ClientOptions, {"nameServer": "own:1"}, environ=environ).name_servers == ("own:1",)
    with pytest.raises(OptionError, match=r"nameServer \(from \$NAMESRV_ADDR\) is malformed"):
        parse_options(ClientOptions, {}, environ={"NAMESRV_ADDR": "nowhere"})


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:9")
    assert parse_options(ClientOptions, {}).name_servers == ("env:9",)


def test_keys_of_spark_are_left_alone() -> None:
    given = {"nameServer": "127.0.0.1:9876", "topic": "orders"}
    assert parse_options(SinkOptions, {**given, "queryName": "q"}) == parse_options(SinkOptions, given)


def test_compatibility_keys_are_accepted_with_one_warning() -> None:
    with pytest.warns(CompatibilityWarning) as caught:
        source({"pull.consumer.cache.loadfactor": "0.75", "consumer.pull.thread.pool.size": "20"})
    assert len(caught) == 1
    assert "consumer.pull.thread.pool.size (pulls are pipelined" in str(caught[0].message)
    assert "pull.consumer.cache.loadFactor (a Java map's" in str(caught[0].message)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(
        OptionError, match="endingOffsets bounds a batch read and means nothing for readStream"
    ):
        source(endingOffsets="latest", where="readStream")
    assert source(endingOffsets="latest", where="read").end_policy() == Latest()
    assert source(endingOffsets="latest", where=None).end_policy() == Latest()


@pytest.mark.parametrize("value", ["true", "false"])
def test_pushed_filters_mean_nothing_for_a_stream(value: str) -> None:
    """All rows are read either way: that is no reason to refuse the query."""
    with pytest.warns(CompatibilityWarning, match=r"pushDownFilters \(means nothing for readStream\)"):
        source(pushDownFilters=value, where="readStream")


def test_a_batch_has_no_triggers() -> None:
    with pytest.warns(CompatibilityWarning, match="maxOffsetsPerTrigger"):
        source(maxOffsetsPerTrigger="5", where="read")
    assert source(maxOffsetsPerTrigger="5", where="readStream").max_offsets_per_trigger == 5


# --- secrets --------------------------------------------------------------------------------


def test_secrets_are_in_no_text() -> None:
    found = source(accessKey=f"{SECRET}-a", secretKey=SECRET, securityToken=f"{SECRET}-t")
    assert found.client.secret_key == SECRET
    assert SECRET not in repr(found)
    assert SECRET not in str(found.client)
    with pytest.raises(OptionError) as caught:
        source(accessKey=SECRET)
    assert SECRET not in str(caught.value)
    with pytest.raises(OptionError) as caught:
        source(accessKey=SECRET, secretKey="  ")
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"secretKey": "x"}, "accessKey is missing"),
        ({"accessKey": "x"}, "secretKey is missing"),
        ({"securityToken": "x"}, "securityToken needs"),
        ({"tlsCertFile": "c", "tls": "true"}, "tlsKeyFile is missing"),
        ({"tlsKeyFile": "c", "tls": "true"}, "tlsCertFile is missing"),
        ({"tlsCaFile": "c"}, "set tls=true"),
        ({"tlsVerify": "false"}, "set tls=true"),
    ],
)
def test_half_a_setting_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        source(given)


@pytest.fixture
def credentials(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "credentials"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize(
    "text",
    [
        f"accessKey=reader\nsecretKey={SECRET}\nsecurityToken=t=:1\n",
        f"# of the reader\n\naccessKey: reader\n secretkey:  '{SECRET}'\nSECURITYTOKEN: \"t=:1\"",
    ],
)
def test_credentials_stand_in_a_file(credentials: Callable[[str], str], text: str) -> None:
    found = source(credentialsFile=credentials(text)).client
    assert (found.access_key, found.secret_key, found.security_token) == ("reader", SECRET, "t=:1")
    assert SECRET not in repr(found)


def test_options_go_before_files_and_files_before_the_environment(credentials: Callable[[str], str]) -> None:
    path = credentials("accessKey=file\nsecretKey=f")
    keys = {"ROCKETMQ_ACCESS_KEY": "env", "ROCKETMQ_SECRET_KEY": "e"}
    given = {"nameServer": "127.0.0.1:9876"}
    by_option = parse_options(ClientOptions, given | {"credentialsFile": path}, environ=keys)
    by_environment = parse_options(ClientOptions, given, environ=keys | {"ROCKETMQ_CREDENTIALS_FILE": path})
    assert by_option.access_key == by_environment.access_key == "file"
    explicit = given | {"accessKey": "me", "secretKey": "s"}
    found = parse_options(ClientOptions, explicit, environ=keys | {"ROCKETMQ_CREDENTIALS_FILE": "/nowhere"})
    assert found.access_key == "me"
    assert parse_options(ClientOptions, given, environ=keys).access_key == "env"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"accessKey=reader\nsecretKey {SECRET}", "line 2 of the file is not one of accessKey, secretKey"),
        (f"password={SECRET}", "line 1 of the file is not one of accessKey, secretKey"),
        (f"secretKey={SECRET}", "accessKey is missing"),
        (f"accessKey=\nsecretKey={SECRET}", "line 1"),
    ],
)
def test_a_file_that_is_wrong_is_told_without_its_secrets(
    credentials: Callable[[str], str], text: str, message: str
) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        source(credentialsFile=credentials(text))
    assert SECRET not in str(caught.value)


def test_a_file_is_there_and_not_doubled(credentials: Callable[[str], str]) -> None:
    with pytest.raises(OptionError, match=r"cannot be read: No such file or directory .*path=/nowhere"):
        source(credentialsFile="/nowhere")
    path = credentials("accessKey=reader\nsecretKey=s")
    with pytest.raises(OptionError, match="accessKey and credentialsFile are both given"):
        source(credentialsFile=path, accessKey="me", secretKey="x")


def test_the_vip_channel_is_accepted_and_said_to_mean_nothing() -> None:
    with pytest.warns(CompatibilityWarning, match=r"vipChannel \(the VIP port answers no pulls"):
        source(vipChannel="true")


# --- the kinds ------------------------------------------------------------------------------


EVERY = {
    declared.name: declared
    for cls in (SourceOptions, SinkOptions, DirectOptions, ReceiverOptions, TableOptions, JobOptions)
    for declared in list_declared(cls)
}


def test_every_example_parses() -> None:
    for declared in EVERY.values():
        declared.parse(declared.kind.example, declared.name)


def test_the_example_of_a_text_fits_its_option() -> None:
    """Of two options with the same text or path as an example, one shows what is not its own."""
    shown: dict[str, set[str]] = {}
    for declared in EVERY.values():
        if declared.kind.label in {"a text", "a path", "a topic name"}:
            shown.setdefault(declared.kind.example, set()).add(declared.name)
    assert {example: names for example, names in shown.items() if len(names) > 1} == {}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("nameServer", "localhost", "'localhost' is not host:port"),
        ("nameServer", "http://localhost:9876", "is not host:port"),
        ("nameServer", "localhost:0", "is not host:port"),
        ("nameServer", "localhost:65536", "is not host:port"),
        ("nameServer", ";", "names nothing"),
        ("topic", "a b", "'a b' is not a topic name"),
        ("topic", "x" * 128, "at most 127"),
        ("topic", "", "names nothing"),
        ("consumerGroup", "g/1", "a group name has"),
        ("consumerGroup", "g" * 121, "at most 120"),
        ("failOnDataLoss", "yes", "expected true or false"),
        ("pullBatchSize", "many", "expected a whole number from 1 to 10000"),
        ("pullBatchSize", "0", "expected a whole number from 1 to 10000"),
        ("pullBatchSize", "10001", "expected a whole number from 1 to 10000"),
        ("pullBatchSize", "1e3", "expected a whole number"),
        ("pullBatchSize", "\u0661", "expected a whole number"),
        ("requestTimeoutMs", "-1", "expected a whole number from 1 on"),
        ("requestTimeoutMs", "9" * 5000, "expected a whole number from 1 on"),
        ("bodyAs", "json", "expected one of binary, string"),
        ("startingTimestamp", "yesterday", "it is no time"),
        ("startingTimestamp", "-5 parsecs", "expected milliseconds since the epoch"),
        ("startingTimestamp", "1969-12-31T00:00:00Z", "before 1970"),
        ("startingOffsets", "-10m", "give it as startingTimestamp"),
        ("startingTimestamp", "-5", "it is no time"),
        ("startingOffsets", "sooner", "expected earliest, latest, group"),
        ("startingOffsetsDefault", "middle", "expected one of earliest, latest, group, fail"),
        ("groupOffsetReset", "group", "expected one of earliest, latest, fail"),
        ("columns", ",", "names nothing"),
    ],
)
def test_a_wrong_value_says_option_value_and_what_is_expected(name: str, value: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        source({name: value})
    text = str(caught.value)
    assert re.search(message, text), text
    assert f"option {name} is malformed" in text
    assert f"for example {name}=" in text
    assert repr(value[:300])[:-1] in text
    assert len(text) < 1_000


def test_the_pattern_error_says_where() -> None:
    with pytest.raises(OptionError, match=r"missing \), unterminated subpattern at position 3"):
        parse_options(SourceOptions, {"nameServer": "h:1", "subscribePattern": "abc(d"}, environ={})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1:9876", ("10.0.0.1:9876",)),
        ("a:1;b:2", ("a:1", "b:2")),
        ("a:1, b:2 ,a:1", ("a:1", "b:2")),
        ("[::1]:9876", ("[::1]:9876",)),
    ],
)
def test_name_servers(text: str, expected: tuple[str, ...]) -> None:
    assert source(nameServer=text).client.name_servers == expected


def test_name_servers_given_as_text_to_the_class_are_refused() -> None:
    with pytest.raises(OptionError, match="tuple"):
        ClientOptions(name_servers="127.0.0.1:9876")  # type: ignore[arg-type]


# --- which queues ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, "none"),
        ({"topic": "t", "subscribePattern": "t.*"}, "topic and subscribePattern"),
        ({"topic": "t", "assign": '{"t": {"b": [0]}}'}, "topic and assign"),
        ({"subscribePattern": "t.*", "assign": '{"t": {"b": [0]}}'}, "subscribePattern and assign"),
    ],
)
def test_exactly_one_way_to_say_which_queues(given: dict[str, str], found: str) -> None:
    said = f"exactly one of topic, subscribePattern and assign is needed, found {found}$"
    with pytest.raises(OptionError, match=said):
        parse_options(SourceOptions, {"nameServer": "h:1", **given}, environ={})


def test_assignment() -> None:
    found = parse_options(
        SourceOptions,
        {"nameServer": "h:1", "assign": '{"orders": {"broker-a": [1, 0, 1, 2147483647]}}'},
        environ={},
    )
    assert found.assign == (A0, A1, MessageQueue("orders", "broker-a", 2**31 - 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must be a JSON object"),
        ("{}", "names at least one topic"),
        ('{"t": [0]}', r"at t: expected an object of brokers, found \[0\]"),
        ('{"t": 5}', "at t: expected an object of brokers, found 5"),
        ('{"t": "12"}', 'at t: expected an object of brokers, found "12"; expected JSON'),
        ('{"t": {"b": [2147483648]}}', "at t > b: 2147483648 is no queue id"),
        ('{"t": {"b": 0}}', "at t > b: expected a list of queue ids, found 0"),
        ('{"t": {"b": []}}', "at t > b: expected a list"),
        ('{"t": {"b": ["0"]}}', 'at t > b: "0" is no queue id'),
        ('{"t": {"b": [true]}}', "at t > b: true is no queue id"),
        ('{"t": {"b": [-1]}}', "at t > b: -1 is no queue id"),
        ('{"t": {"b": [0]}, "t": {"c": [0]}}', "the key 't' is given twice"),
        ('{"a": {"b": [0]}, "t": {"b": [0]}, "t": {"c": [0]}}', "the key 't' is given twice"),
    ],
)
def test_a_malformed_assignment_says_where(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options(SourceOptions, {"nameServer": "h:1", "assign": text}, environ={})


# --- where to start and end -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Latest()),
        ({"startingOffsets": "Earliest"}, Earliest()),
        ({"startingOffsets": "latest"}, Latest()),
        ({"startingOffsets": "last:100"}, LastMessages(100)),
        ({"startingOffsets": "group", "consumerGroup": "g"}, GroupOffsets(Earliest())),
        (
            {"startingOffsets": "group", "consumerGroup": "g", "groupOffsetReset": "latest"},
            GroupOffsets(Latest()),
        ),
        ({"startingOffsets": "group", "consumerGroup": "g", "groupOffsetReset": "fail"}, GroupOffsets(None)),
        (
            {"startingOffsets": '{"orders": {"broker-a": {"0": 5, "1": -1}}}'},
            AtOffsets({A0: 5, A1: Latest()}),
        ),
        (
            {"startingOffsets": '{"orders": {"broker-a": {"0": -2, "1": "last:7"}}, "payments": "latest"}'},
            AtOffsets({A0: Earliest(), A1: LastMessages(7)}, None, {"payments": Latest()}),
        ),
        (
            {
                "startingOffsets": '{"paid": "latest", '
                '"orders": {"broker-a": {"0": 0, "1": 9223372036854775807}}}'
            },
            AtOffsets({A0: 0, A1: 2**63 - 1}, None, {"paid": Latest()}),
        ),
        (
            {"startingOffsets": '{"orders": {"broker-a": {"2147483647": 5}}}'},
            AtOffsets({MessageQueue("orders", "broker-a", 2**31 - 1): 5}),
        ),
        ({"startingTimestamp": "1970-01-01T00:00:00Z"}, AtTimestamp(0)),
        ({"startingTimestamp": "9223372036854775807"}, AtTimestamp(2**63 - 1)),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"broker-a": {"0": 0}}}'},
            AtOffsets({A0: AtTimestamp(0)}),
        ),
        (
            {"startingOffsets": '{"orders": {"broker-a": {"0": 5}}}', "startingOffsetsDefault": "earliest"},
            AtOffsets({A0: 5}, Earliest()),
        ),
        (
            {
                "startingOffsets": '{"orders": {"broker-a": {"0": 5}}}',
                "startingOffsetsDefault": "group",
                "groupOffsetReset": "latest",
                "consumerGroup": "g",
            },
            AtOffsets({A0: 5}, GroupOffsets(Latest())),
        ),
        ({"startingTimestamp": "1700000000000"}, AtTimestamp(1_700_000_000_000)),
        ({"startingTimestamp": "2023-11-14T22:13:20Z"}, AtTimestamp(1_700_000_000_000)),
        ({"startingTimestamp": "2023-11-14T22:13:20.123", "timeZone": "UTC"}, AtTimestamp(1_700_000_000_123)),
        ({"startingTimestamp": "2023-11-15 06:13:20+08:00"}, AtTimestamp(1_700_000_000_000)),
        ({"startingTimestamp": "2023-11-14", "timeZone": "Z"}, AtTimestamp(1_699_920_000_000)),
        ({"startingTimestamp": "-10m"}, Ago(600_000)),
        ({"startingTimestamp": "-1h30m"}, Ago(5_400_000)),
        ({"startingTimestamp": "- 2 days"}, Ago(172_800_000)),
        ({"startingTimestamp": "now"}, Ago(0)),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"broker-a": {"0": 5, "1": "-1s"}}, "payments": 9}'},
            AtOffsets({A0: AtTimestamp(5), A1: Ago(1_000)}, None, {"payments": AtTimestamp(9)}),
        ),
        # timestamp > offsets by timestamp > offsets
        (
            {
                "startingOffsets": "earliest",
                "startingOffsetsByTimestamp": '{"orders": 5}',
                "startingTimestamp": "7",
            },
            AtTimestamp(7),
        ),
        (
            {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"orders": 5}'},
            AtOffsets({}, None, {"orders": AtTimestamp(5)}),
        ),
    ],
)
def test_where_to_start(given: dict[str, str], expected: StartPolicy) -> None:
    found = source(given)
    assert found.start_policy(streaming=True) == expected
    ending = {
        name.replace("starting", "ending").replace("Starting", "Ending"): value
        for name, value in given.items()
    }
    if given and not {"earliest", "Earliest"} & set(given.values()) and "-2" not in str(given):
        assert source(ending, where="read").end_policy() == expected


def test_a_batch_goes_from_earliest_to_latest() -> None:
    found = source(where="read")
    assert (found.start_policy(streaming=False), found.end_policy()) == (Earliest(), Latest())


@pytest.mark.parametrize("start", ["latest", '{"orders": {"broker-a": {"0": -1}}}', '{"orders": "latest"}'])
def test_a_batch_that_starts_at_latest_is_refused(start: str) -> None:
    found = source(startingOffsets=start, where="read")
    with pytest.raises(OptionError, match="starts at latest reads nothing"):
        found.start_policy(streaming=False)
    found.start_policy(streaming=True)


@pytest.mark.parametrize("end", ["earliest", '{"orders": {"broker-a": {"0": -2}}}'])
def test_a_batch_that_ends_at_earliest_is_refused(end: str) -> None:
    with pytest.raises(OptionError, match="ends at earliest reads nothing"):
        source(endingOffsets=end, where="read")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a":', r"JSON error at line 1 column 6: Expecting value"),
        ('{"a": {"b": {"0": 1,}}}', r"JSON error at line 1 column \d+"),
        ('{\n"a": {"b": {"0": 1}}', r"JSON error at line 2 column \d+"),
        (
            '{"a": {"b": {"0": -3}}}',
            r'-3 is no position \(an offset, -1 latest, -2 earliest, "earliest", "latest", "last:100"\)',
        ),
        ('{"a": {"b": {"2147483648": 1}}}', "'2147483648' is no queue id"),
        ('{"a": {"b": {"0": 1.5}}}', "at a > b > 0: 1.5 is no position"),
        ('{"a": {"b": {"0": true}}}', "at a > b > 0: true is no position"),
        ('{"a": {"b": {"0": null}}}', "at a > b > 0: null is no position"),
        ('{"a": {"b": {"0": "5"}}}', 'at a > b > 0: "5" is no position'),
        ('{"a": {"b": {"0": 9223372036854775808}}}', "is not a 64-bit number"),
        ('{"a": {"b": {"q0": 1}}}', "at a > b > q0: 'q0' is no queue id"),
        ('{"a": {"b": {"0": 1, "00": 2}}}', "at a > b > 00: the queue is given twice"),
        ('{"a": {"b": {"0": 1, "0": 2}}}', "the key '0' is given twice"),
        ('{"a": {"b": 5}}', "at a > b: expected an object of queue ids, found 5"),
        ('{"a": {"b": {}}}', "at a > b: expected an object of queue ids, found {}"),
        ('{"a": {}}', "at a: expected an object of brokers"),
        ('{"a": [1]}', r"at a: \[1\] is no position"),
        ("{" * 100_000, "JSON error|nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_malformed_offsets_say_where(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        source(startingOffsets=text)


def test_offsets_by_timestamp_take_times_only() -> None:
    with pytest.raises(OptionError, match="at orders: it is no time"):
        source(startingOffsetsByTimestamp='{"orders": "earliest"}')
    with pytest.raises(OptionError, match="at orders: true is no time"):
        source(startingOffsetsByTimestamp='{"orders": true}')
    with pytest.raises(OptionError, match="at orders > b > 0: -1 is no time"):
        source(startingOffsetsByTimestamp='{"orders": {"b": {"0": -1}}}')


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_group_offsets_need_a_group(name: str) -> None:
    with pytest.raises(OptionError, match="set consumerGroup"):
        source({name: "group"}, where="read")


# --- which messages, and how many -----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tags", "expression"),
    [
        ("*", (), "*"),
        ("TagA", ("TagA",), "TagA"),
        ("TagB||TagA || TagB", ("TagB", "TagA"), "TagA || TagB"),
        ("A|B", ("A|B",), "A|B"),
    ],
)
def test_tags(text: str, tags: tuple[str, ...], expression: str) -> None:
    found = source({"consumer.tag": text})
    assert found.tags == tags
    assert found.selector == MessageSelector(expression)


@pytest.mark.parametrize("text", ["||", "A ||", "A || * || B"])
def test_malformed_tags(text: str) -> None:
    with pytest.raises(OptionError, match="option tags is malformed"):
        source(tags=text)


def test_an_sql_condition() -> None:
    assert source(sqlFilter="a > 1").selector == MessageSelector.by_sql("a > 1")
    with pytest.raises(OptionError, match="either tags or sqlFilter"):
        source(sqlFilter="a > 1", tags="A")


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({}, "max_offsets_per_trigger", 10_000_000),
        ({"maxOffsetsPerTrigger": "-1"}, "max_offsets_per_trigger", None),
        ({"maxOffsetsPerTrigger": "5"}, "max_offsets_per_trigger", 5),
        ({"maxBytesPerTrigger": "1048576"}, "max_bytes_per_trigger", 1 << 20),
        ({"maxBytesPerTrigger": "64m"}, "max_bytes_per_trigger", 64 << 20),
        ({"maxBytesPerTrigger": "2 GiB"}, "max_bytes_per_trigger", 2 << 30),
        ({"pull.max.speed.per.partition": "-1"}, "max_rate_per_queue", None),
        ({"maxRatePerQueue": "100"}, "max_rate_per_queue", 100),
        ({}, "max_trigger_delay_ms", 900_000),
        ({"maxTriggerDelay": "30 seconds"}, "max_trigger_delay_ms", 30_000),
        ({"maxTriggerDelay": "250"}, "max_trigger_delay_ms", 250),
        ({}, "heartbeat_interval_ms", None),
        ({"heartbeatInterval": "10s"}, "heartbeat_interval_ms", 10_000),
        ({"consumer.offset.persist.interval": "0"}, "commit_interval_ms", 0),
        ({"heartbeatInterval": "2s"}, "heartbeat_interval_ms", 2_000),
        ({"emptyPullDelayMs": "7"}, "empty_pull_delay_ms", 7),
        ({"consumer.delay.when.message.not.found": "7"}, "empty_pull_delay_ms", 7),
        ({"commitOffsets": "false"}, "commit_offsets", False),
        ({"commitOffsets": "true", "consumerGroup": "g"}, "commits", True),
        ({"consumerGroup": "g"}, "commits", True),
        ({"commitOffsets": "false", "consumerGroup": "g"}, "commits", False),
        ({}, "commits", False),
        ({}, "event_time_alignment", EventTime.OFF),
        ({"eventTimeAlignment": "store"}, "event_time_alignment", EventTime.STORE),
    ],
)
def test_triggers(given: dict[str, str], field: str, expected: object) -> None:
    assert getattr(source(given), field) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxOffsetsPerTrigger", "0"),
        ("maxBytesPerTrigger", "0m"),
        ("maxBytesPerTrigger", "1.5g"),
        ("maxTriggerDelay", "x"),
    ],
)
def test_malformed_limits(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} is malformed"):
        source({name: value})


def test_the_least_of_a_trigger_cannot_be_above_the_most() -> None:
    with pytest.raises(OptionError, match="minOffsetsPerTrigger=6 is above maxOffsetsPerTrigger=5"):
        source(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")
    assert source(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5").min_offsets_per_trigger == 5


def test_a_stream_forgets_the_queues_that_are_named() -> None:
    found = source(forgetQueues="orders@broker-a:1")
    assert (found.forgets(A0), found.forgets(A1), source().forgets(A1)) == (False, True, False)


def test_heartbeats_have_an_interval() -> None:
    with pytest.raises(OptionError, match="an interval above 0"):
        source(heartbeatInterval="0")
    assert source(heartbeatInterval="1ms").heartbeat_interval_ms == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pushDownFilters", "true"),
        ("eventTimeAlignment", "store"),
        ("heartbeatInterval", "1s"),
        ("partitionPerQueue", "true"),
        ("maxBytesPerTrigger", "1m"),
        ("maxRatePerQueue", "5"),
        ("minOffsetsPerTrigger", "5"),
        ("consumerGroup", "g"),
    ],
)
def test_what_depends_on_single_offsets_is_not_for_committed_batches(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"{name} cannot be combined with isolation=read_committed"):
        source({name: value, "isolation": "read_committed"}, where=None)
    source({name: value}, where=None)


def test_committed_batches_are_those_of_known_topics() -> None:
    given = {"nameServer": "h:1", "isolation": "read_committed"}
    with pytest.raises(OptionError, match="subscribePattern cannot be combined with isolation"):
        parse_options(SourceOptions, given | {"subscribePattern": "t.*"}, environ={})


def test_a_commit_topic_is_for_committed_batches() -> None:
    with pytest.raises(OptionError, match="commitTopic needs isolation=read_committed"):
        source(commitTopic="c")
    named = source(commitTopic="c", isolation="read_committed").isolation
    other = source(isolation="read_committed").isolation
    assert (named.committed_only, named.commit_topic_of("orders")) == (True, "c")
    assert (other.committed_only, other.commit_topic_of("orders")) == (True, "orders-commits")
    assert not source().isolation.committed_only


# --- the rest -------------------------------------------------------------------------------


def test_one_partition_a_queue_contradicts_splitting() -> None:
    with pytest.raises(OptionError, match="partitionPerQueue contradicts"):
        source(partitionPerQueue="true", minPartitions="4")
    with pytest.raises(OptionError, match="partitionPerQueue contradicts"):
        source(partitionPerQueue="true", maxRecordsPerPartition="4")
    assert source(partitionPerQueue="true").partition_per_queue
    assert (source(minPartitions="4").min_partitions, source(minPartitions="4").partition_per_queue) == (
        4,
        False,
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tags": "a", "sqlFilter": "b = 1"}, "either tags or sqlFilter"),
        ({"startTimestamp": "7"}, "startTimestamp needs startFrom=timestamp"),
        (
            {"startFrom": "timestamp", "startTimestamp": "1767225600"},
            "1767225600 is a time in seconds: write 1767225600000",
        ),
        ({"heartbeatIntervalMs": "0"}, "heartbeatIntervalMs must be 1 or more"),
        ({"storeTimeoutMs": "0"}, "storeTimeoutMs must be 1 or more"),
    ],
)
def test_what_contradicts_itself_in_a_receiver(given: dict[str, str], message: str) -> None:
    required = {"nameServer": "h:1", "topic": "t", "consumerGroup": "g"}
    with pytest.raises(OptionError, match=message):
        parse_options(ReceiverOptions, required | given, environ={})


def test_a_receiver_starts_at_a_time_and_keeps_the_shortest_intervals() -> None:
    given = {
        "startFrom": "timestamp",
        "startTimestamp": "7",
        "heartbeatIntervalMs": "1",
        "storeTimeoutMs": "1",
    }
    required = {"nameServer": "h:1", "topic": "t", "consumerGroup": "g"}
    found = parse_options(ReceiverOptions, required | given, environ={})
    assert (found.timestamp_ms, found.heartbeat_ms, found.ttl_ms) == (7, 1, 1)
    assert found.selector == MessageSelector()


def direct(**given: str) -> DirectOptions:
    return parse_options(DirectOptions, {"nameServer": "h:1"} | given, environ={})


def test_the_options_of_a_direct_stream_become_those_of_reading() -> None:
    given = {
        "pull.max.speed.per.partition": "5",
        "pullBatchSize": "6",
        "pullsInFlight": "7",
        "tags": "a || b",
        "failOnDataLoss": "false",
        "onCorrupt": "skip",
        "checkCrc": "true",
    }
    found = direct(**given).source(("orders",), "g")
    assert found == source(
        {"nameServer": "h:1", "consumerGroup": "g", "partitionPerQueue": True, "maxRatePerQueue": 5}
        | {name: value for name, value in given.items() if not name.startswith("pull.")}
    )
    assert direct(sqlFilter="a > 1").source(("orders",), "g").sql_filter == "a > 1"
    assert direct().source(("orders",), "g").fail_on_data_loss
    with pytest.raises(OptionError, match="either tags or sqlFilter"):
        direct(tags="a", sqlFilter="b = 1")
    with pytest.raises(OptionError, match="commitTopic needs isolation"):
        direct(commitTopic="c")


def test_a_direct_stream_reads_the_commit_topics_too() -> None:
    topics = ("orders", "paid")
    assert direct().commit_topics(topics) == {}
    assert direct().source_of_stream(topics, "g").topics == topics
    committed = direct(isolation="read_committed")
    assert committed.commit_topics(topics) == {"orders": "orders-commits", "paid": "paid-commits"}
    found = committed.source_of_stream(topics, "g")
    assert (found.topics, found.consumer_group) == ((*topics, "orders-commits", "paid-commits"), "g")
    shared = direct(isolation="read_committed", commitTopic="c")
    assert shared.source_of_stream(topics, "g").topics == (*topics, "c")
    with pytest.raises(OptionError, match=r"^c is a commit topic") as caught:
        shared.commit_topics(("orders", "c"))
    assert caught.value.facts["option"] == "topics"


def test_a_direct_stream_waits_3_s_as_rocketmq_spark_does() -> None:
    assert parse_direct_options({"nameServer": "h:1"}).client.request_timeout_ms == 3_000
    given = {"nameServer": "h:1", "requestTimeoutMs": "7"}
    assert parse_direct_options(given).client.request_timeout_ms == 7


@pytest.mark.parametrize(
    ("text", "expected"),
    [("availableNow", None), ("AVAILABLENOW", None), ("10 seconds", 10_000), ("250", 250)],
)
def test_the_trigger_of_a_job(text: str, expected: int | None) -> None:
    assert parse_options(JobOptions, {"trigger": text}, environ={}).trigger_ms == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("|", "|"), ("\\t", "\t"), ("\\U0001", "\x01"), ("\\001", "\x01"), ("\\r", "\r"), ("AB", "AB")],
)
def test_a_delimiter_may_be_written_as_an_escape(text: str, expected: str) -> None:
    found = parse_options(TableOptions, {"fieldDelimiter": text, "lineDelimiter": text}, environ={})
    assert (found.field_delimiter, found.line_delimiter) == (expected, expected)
    with pytest.raises(OptionError, match="fieldDelimiter is malformed: it is empty"):
        parse_options(TableOptions, {"fieldDelimiter": ""}, environ={})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"isDynamicTag": "true"}, "isDynamicTag=true needs dynamicTagColumn"),
        ({"avroSchema": "{}", "avroSchemaFile": "/a"}, "only one of avroSchema and avroSchemaFile"),
        ({"format": "protobuf"}, "format=protobuf needs protobufDescriptorFile and protobufMessage"),
        ({"format": "protobuf", "protobufMessage": "M"}, "format=protobuf needs protobufDescriptorFile"),
        ({"badRecords": "dead-letter"}, "badRecords=dead-letter and badRecordsTopic belong together"),
        ({"badRecordsTopic": "t"}, "badRecords=dead-letter and badRecordsTopic belong together"),
    ],
)
def test_what_contradicts_itself_in_a_table(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options(TableOptions, given, environ={})


@pytest.mark.parametrize(
    "given",
    [
        {"isDynamicTag": "true", "dynamicTagColumn": "kind"},
        {"avroSchema": "{}"},
        {"avroSchemaFile": "/a"},
        {"format": "protobuf", "protobufDescriptorFile": "/d", "protobufMessage": "M"},
        {"badRecords": "dead-letter", "badRecordsTopic": "t"},
    ],
)
def test_what_belongs_together_in_a_table(given: dict[str, str]) -> None:
    found = parse_options(TableOptions, given, environ={})
    assert found.tag_column == given.get("dynamicTagColumn")


def test_options_travel_to_other_processes() -> None:
    found = source(
        startingOffsets='{"orders": {"broker-a": {"0": 5}}}', accessKey="a", secretKey=SECRET, bodyAs="STRING"
    )
    copy = pickle.loads(pickle.dumps(found))
    assert copy == found
    assert copy.client.secret_key == SECRET
    assert copy.body_as is BodyAs.STRING
    assert hash(copy.client) == hash(found.client)


def test_defaults() -> None:
    found = source()
    assert found.group == "pyspark-rocketmq"
    assert found.bounds.starting_timestamp_strategy is TimestampStrategy.LATEST
    assert (found.pull_batch_size, found.pulls_in_flight, found.fail_on_data_loss) == (1024, None, True)
    assert (found.client.request_timeout_ms, found.client.route_refresh_ms) == (10_000, 30_000)


def test_the_reference_says_everything_of_every_option() -> None:
    rows = {row.name: row for row in option_reference(SourceOptions)}
    assert len(rows) == len(list_declared(SourceOptions))
    assert rows["nameServer"].default == "required"
    assert rows["nameServer"].env == "NAMESRV_ADDR"
    assert rows["secretKey"].secret
    assert rows["failOnDataLoss"].default == "true"
    assert rows["endingOffsets"].only == ("read",)
    assert all(row.doc.endswith(".") and row.type and row.example for row in rows.values())


def test_parsing_does_not_warn_without_reason() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source()


@pytest.mark.parametrize(
    ("value", "policy"),
    [("smallest", Earliest()), ("Earliest", Earliest()), ("largest", Latest()), ("latest", Latest())],
)
def test_kafka_s_auto_offset_reset_says_what_it_became(value, policy):
    given = {"nameServer": "h:1", "topic": "orders", "auto.offset.reset": value}
    became = f"auto.offset.reset={value} became startingOffsets={str(type(policy).__name__).lower()}"
    with pytest.warns(CompatibilityWarning, match=f"^{became}$"):
        assert parse_options(SourceOptions, given).bounds.starting_offsets == policy
    receiver = {**given, "consumerGroup": "g"}
    with pytest.warns(CompatibilityWarning, match="became startFrom="):
        assert parse_options(ReceiverOptions, receiver).start.value == type(policy).__name__.lower()


def test_an_auto_offset_reset_that_is_none_or_contradicts_is_an_error():
    given = {"nameServer": "h:1", "topic": "orders", "auto.offset.reset": "none"}
    with pytest.raises(OptionError, match=r"option auto\.offset\.reset is malformed"):
        parse_options(SourceOptions, given)
    both = {**given, "auto.offset.reset": "smallest", "startingOffsets": "latest"}
    with pytest.raises(OptionError, match="the same option with different values"):
        parse_options(SourceOptions, both)
