"""Every option of every API: declared once, parsed once at the edge, never seen as text below it."""

from pyspark_rocketmq.options.choices import BodyAs, EventTime, TimestampStrategy
from pyspark_rocketmq.options.client import ClientOptions
from pyspark_rocketmq.options.declare import (
    CompatibilityWarning,
    Kind,
    Option,
    OptionRow,
    Options,
    Where,
    group,
    option,
    option_reference,
    option_values,
    parse_options,
)
from pyspark_rocketmq.options.dstream import DirectOptions, parse_direct_options
from pyspark_rocketmq.options.receiver import Allocation, MessageModel, ReceiverOptions, StartFrom
from pyspark_rocketmq.options.sink import Compressor, Guarantee, SinkOptions
from pyspark_rocketmq.options.source import SourceOptions
from pyspark_rocketmq.options.sql import (
    BadRecords,
    BodyFormat,
    JobOptions,
    OutputMode,
    RuntimeMode,
    TableOptions,
)

__all__ = [
    "Allocation",
    "BadRecords",
    "BodyAs",
    "BodyFormat",
    "ClientOptions",
    "CompatibilityWarning",
    "Compressor",
    "DirectOptions",
    "EventTime",
    "Guarantee",
    "JobOptions",
    "Kind",
    "MessageModel",
    "Option",
    "OptionRow",
    "Options",
    "OutputMode",
    "ReceiverOptions",
    "RuntimeMode",
    "SinkOptions",
    "SourceOptions",
    "StartFrom",
    "TableOptions",
    "TimestampStrategy",
    "Where",
    "group",
    "option",
    "option_reference",
    "option_values",
    "parse_direct_options",
    "parse_options",
]
