"""Every option of every API: declared once, parsed once at the edge, never seen as text below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_rocketmq._lazy import lazy_names

if TYPE_CHECKING:
    from pyspark_rocketmq.options.choices import (
        BodyAs,
        Compressor,
        EventTime,
        Guarantee,
        TimestampStrategy,
    )
    from pyspark_rocketmq.options.client import ClientOptions
    from pyspark_rocketmq.options.declare import (
        CompatibilityWarning,
        Kind,
        Option,
        OptionRow,
        Options,
        Where,
        group,
        list_spellings,
        option,
        option_reference,
        option_values,
    )
    from pyspark_rocketmq.options.dstream import DirectOptions, parse_direct_options
    from pyspark_rocketmq.options.parse import parse_options
    from pyspark_rocketmq.options.receiver import Allocation, MessageModel, ReceiverOptions, StartFrom
    from pyspark_rocketmq.options.sink import SinkOptions
    from pyspark_rocketmq.options.source import SourceOptions
    from pyspark_rocketmq.options.sql import (
        BadRecords,
        BodyFormat,
        Changelog,
        FieldCount,
        JobOptions,
        OutputMode,
        RuntimeMode,
        SqlDialect,
        TableOptions,
    )

__all__ = [
    "Allocation",
    "BadRecords",
    "BodyAs",
    "BodyFormat",
    "Changelog",
    "ClientOptions",
    "CompatibilityWarning",
    "Compressor",
    "DirectOptions",
    "EventTime",
    "FieldCount",
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
    "SqlDialect",
    "StartFrom",
    "TableOptions",
    "TimestampStrategy",
    "Where",
    "group",
    "list_spellings",
    "option",
    "option_reference",
    "option_values",
    "parse_direct_options",
    "parse_options",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".choices": (
            "BodyAs",
            "Compressor",
            "EventTime",
            "Guarantee",
            "TimestampStrategy",
        ),
        ".client": ("ClientOptions",),
        ".declare": (
            "CompatibilityWarning",
            "Kind",
            "Option",
            "OptionRow",
            "Options",
            "Where",
            "group",
            "list_spellings",
            "option",
            "option_reference",
            "option_values",
        ),
        ".dstream": (
            "DirectOptions",
            "parse_direct_options",
        ),
        ".parse": ("parse_options",),
        ".receiver": (
            "Allocation",
            "MessageModel",
            "ReceiverOptions",
            "StartFrom",
        ),
        ".sink": ("SinkOptions",),
        ".source": ("SourceOptions",),
        ".sql": (
            "BadRecords",
            "BodyFormat",
            "Changelog",
            "FieldCount",
            "JobOptions",
            "OutputMode",
            "RuntimeMode",
            "SqlDialect",
            "TableOptions",
        ),
    },
)
