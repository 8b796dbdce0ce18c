"""Compile a plan to DataFrames. Each step becomes Spark expressions, or Python if that is not possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import BinaryType, StringType, StructField, StructType, VariantType

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.compile.joins import join_by_key, join_dimension, join_streams, join_table
from pyspark_rocketmq.streams.compile.stateful import join_latest, run_processor
from pyspark_rocketmq.streams.compile.windows import (
    KEY,
    aggregate_groups,
    aggregate_windows,
    check_time_field,
    drop_duplicates,
    rank_rows,
    take_time_field,
)
from pyspark_rocketmq.streams.connectors.base import read_source
from pyspark_rocketmq.streams.frame.error_handling import Guard
from pyspark_rocketmq.streams.frame.flow import Flow, column, parse_schema
from pyspark_rocketmq.streams.frame.python_steps import BODY, ERROR, TAG, PythonSteps, Step, to_json
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.analysis import STATEFUL, Analysis, analyze
from pyspark_rocketmq.streams.plan.choices import FunctionKind
from pyspark_rocketmq.streams.plan.lambda_projection import Identity, ParseJson, Projection
from pyspark_rocketmq.streams.plan.nodes import Shape

__all__ = ["Compiler", "is_bounded"]

_KEEPS_VALUE: Final[frozenset[FunctionKind]] = frozenset(
    {"filter", "forEach", "time", "label", "key", "serialize"}
)

_KEEPS_TYPES: Final = (p.SelectFields, p.Where, p.TimeSelect, p.Distinct, p.Script, p.Windowed, p.Group)
"""Steps that get fields with their JSON types, not as texts."""


def is_bounded(plan: p.Plan) -> bool:
    """Whether a plan's sources are bounded.

    Raises
    ------
    PlanError
        Some sources are bounded and others are not, and this is not a join of a stream with a table.
    """
    for node in plan.nodes():
        if not isinstance(node, p.TableJoin) and len({p.ends(side) for side in node.inputs}) > 1:
            raise PlanError(
                "one side is bounded and the other is not: set tail=True for the file, or join it "
                "with join, leftJoin or dimJoin",
                step=node.name,
            )
    kinds = {p.ends(sink) for sink in plan.sinks}
    if len(kinds) > 1:
        raise PlanError(
            "some sinks of the job are bounded and others are not: use separate jobs",
            step=next(sink.name for sink in plan.sinks if p.ends(sink)),
        )
    return kinds == {True}


@dataclass(slots=True)
class Compiler:
    """Compiles the steps of one plan, each once.

    Parameters
    ----------
    spark : SparkSession
    plan : Plan
    given : dict, optional
        Flows that replace steps: a test's rows, or an existing batch.
    """

    spark: SparkSession
    plan: p.Plan
    given: Mapping[p.Node, Flow] = field(default_factory=dict)
    errors: Guard | None = None
    analysis: Analysis = field(init=False)
    guard: Guard = field(init=False)
    """The handling of records with an error."""
    _made: dict[p.Node, Flow] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.analysis = analyze(self.plan)
        self.guard = self.errors or Guard(self.plan.on_error)
        is_bounded(self.plan)  # or it cannot run

    def flow(self, node: p.Node) -> Flow:
        """Return the result of a step.

        Raises
        ------
        PlanError
            The step cannot be compiled. The message names it.
        """
        if node in self.given:
            return replace(self.given[node], exact=self.analysis.exact)
        if node not in self._made:
            try:
                self._made[node] = replace(self._compile(node), exact=self.analysis.exact)
            except (AnalysisException, ParseException) as error:
                text = str(error).strip().splitlines()[0]
                raise PlanError(f"Spark rejects this step: {text}", step=node.name) from error
        return self._made[node]

    def _compile(self, node: p.Node) -> Flow:  # noqa: C901, PLR0912 - a case a kind
        match node:
            case p.Source():
                return read_source(self.spark, node, self.analysis, self.plan, self.guard)
            case p.Apply():
                return self._apply(node)
            case p.Where():
                condition = F.expr(node.condition) if isinstance(node.condition, str) else node.condition
                flow = self._parse_named(node, node.input)
                return _keep_types(
                    flow, lambda texts: replace(texts, df=texts.df.where(flow.of_beats(condition)))
                )
            case p.ColumnsMap():
                flow = self._parse_named(node, node.input)
                columns = [
                    (F.expr(value) if isinstance(value, str) else value).alias(name)
                    for name, value in node.columns.items()
                ]
                return flow.with_hidden_identity().select(columns, node.columns, shape=Shape.COLUMNS)
            case p.Script():
                return self._script(node)
            case p.SelectFields():
                flow = self._parse_named(node, node.input, node.fields).with_hidden_identity()
                return flow.select(map(column, node.fields), node.fields, shape=Shape.COLUMNS)
            case p.TimeSelect():
                flow = self._parse_named(node, node.input)
                if not p.ends(node) and self.analysis.lateness_s(node) is not None:
                    check_time_field(flow, node.field, node)
                return _keep_types(flow, lambda texts: take_time_field(texts, node.field, self.guard, node))
            case p.Select():
                flow = self.flow(node.input)
                labels = map(_label, node.labels)
                return replace(flow, df=flow.df.where(flow.of_beats(F.col(TAG).isin(*labels))))
            case p.Union():
                return self._union(node)
            case p.Windowed():
                return aggregate_windows(
                    self._parse_named(node, node.input), node, self.guard, streaming=not p.ends(node)
                )
            case p.Group():
                return aggregate_groups(self._parse_named(node, node.input), node, self.guard)
            case p.Process():
                schema = parse_schema(node.schema, node)
                return run_processor(self._parse_named(node, node.input), node, schema, self.guard)
            case p.LatestJoin():
                return join_latest(self.flow(node.left), self.flow(node.right), node, self.guard)
            case p.TopN():
                return rank_rows(self.flow(node.input), node, self.guard, streaming=not p.ends(node))
            case p.Distinct():
                flow = self._parse_named(node, node.input)
                lateness_s = self.analysis.lateness_s(node, open_windows=True)
                return _keep_types(
                    flow, lambda texts: drop_duplicates(texts, node, self.guard, lateness_s=lateness_s)
                )
            case p.StreamJoin():
                return join_streams(self.flow(node.left), self.flow(node.right), node)
            case p.TableJoin():
                return join_table(self.flow(node.left), self.flow(node.right), node)
            case p.KeyJoin():
                return join_by_key(self.flow(node.left), self.flow(node.right), node, self.guard)
            case p.DimensionJoin():
                whole = self.analysis.shapes[node] is Shape.JSON
                wanted = None if whole else self.analysis.wanted(node)
                return join_dimension(self.spark, self.flow(node.input), node, self.guard, wanted)
            case p.Sink():
                return self.flow(node.input)
        raise PlanError("unknown step", step=node.name)

    def _parse_named(self, node: p.Node, before: p.Node, fields: tuple[str, ...] = ()) -> Flow:
        """Return the input with all fields parsed that this step or a later one names."""
        flow = self.flow(before)
        if flow.shape is Shape.COLUMNS and isinstance(node, _KEEPS_TYPES):
            flow.check_fields(fields, node)
            return flow
        if flow.shape is Shape.TEXT and fields:
            return flow.with_fields(fields, self.guard, node)
        if flow.shape is not Shape.JSON:
            return flow.plain()
        wanted = self.analysis.wanted(before) - ({KEY} if flow.keyed else set())
        return flow.with_fields(_drop_case_twins([*fields, *sorted(wanted)], flow.columns), self.guard, node)

    def _script(self, node: p.Script) -> Flow:
        flow = self._parse_named(node, node.input)
        if flow.shape is Shape.JSON:
            flow = flow.without_text()
        if flow.shape is Shape.TEXT:
            raise PlanError(
                "the records are text without fields: parse them first, with map(json.loads)", step=node.name
            )
        changed = frozenset(name.lower() for name, _ in node.lines)
        return _keep_types(flow.with_hidden_identity(), lambda texts: _run_script(texts, node.lines), changed)

    def _union(self, node: p.Union) -> Flow:
        split = _find_same_split(node)
        if split is not None:
            return self._compile(split)
        left, right = self._sides(node)
        df = left.df.unionByName(right.df, allowMissingColumns=True)
        beats = left.beats or right.beats
        if left.beats != right.beats:
            df = df.withColumn("__beat", F.coalesce("__beat", F.lit(False)))
        return Flow(
            df=df,
            shape=left.shape,
            columns=tuple(_drop_case_twins(list(right.columns), left.columns)),
            beats=beats,
            checked=left.checked and right.checked,
            watermarked=left.watermarked and right.watermarked,
            windowed=left.windowed and right.windowed,
            updates=left.updates or right.updates,
            tagged=left.tagged and right.tagged,
            keyed=left.keyed and right.keyed,
            serialized=left.serialized and right.serialized,
            identity=left.identity if left.identity == right.identity else (),
            shares_identity=True,
        )

    def _sides(self, node: p.Union) -> tuple[Flow, Flow]:
        """Return a union's sides with the same fields parsed, and both with a watermark if one has it."""
        left, right = self.flow(node.left), self.flow(node.right)
        if left.shape is Shape.COLUMNS:
            left, right = _with_common_types(left, right)
        if left.shape is Shape.JSON:  # or a field that only one side has parsed would be null on the other
            names = _drop_case_twins(list(right.columns), left.columns)
            left, right = (self._parse_missing(flow, names, node) for flow in (left, right))
        lateness_s = self.analysis.lateness_s(node)
        if left.watermarked != right.watermarked and lateness_s is not None:
            return left.with_watermark(lateness_s), right.with_watermark(lateness_s)
        return left, right

    def _parse_missing(self, flow: Flow, names: list[str], node: p.Node) -> Flow:
        known = {name.lower() for name in flow.columns}
        missing = [name for name in names if name.lower() not in known]
        return flow.with_fields(missing, self.guard, node) if missing else flow

    # --- Python -------------------------------------------------------------------------------

    def _apply(self, node: p.Apply) -> Flow:
        match self.analysis.lifted.get(node):
            case Identity():
                return self.flow(node.input)
            case ParseJson():
                return replace(self.flow(node.input), shape=Shape.JSON)
            case Projection() as projection:
                flow = self.flow(node.input).with_hidden_identity()
                return flow.project(projection, self.guard, node)
        chain = [node]
        while self._fuses(chain[0].input):
            before = chain[0].input
            assert isinstance(before, p.Apply)
            chain.insert(0, before)
        return self._python(chain)

    def _fuses(self, node: p.Node) -> bool:
        """Whether a step is part of the next step's Python function."""
        alone = len(self.analysis.consumers[node]) == 1 and node not in self.given
        python = isinstance(node, p.Apply) and self.analysis.is_python(node) and node.schema is None
        return alone and python

    def _python(self, chain: list[p.Apply]) -> Flow:
        last, flow = chain[-1], self.flow(chain[0].input)
        keeps = all(step.how in _KEEPS_VALUE for step in chain)
        if flow.variants or not keeps:
            flow = flow.with_hidden_identity()
        if flow.variants:
            flow = flow.as_json()
        text = flow.shape is Shape.TEXT
        with_text = flow.with_text()
        steps = tuple(Step(step.name, step.how, step.function) for step in chain)
        python = PythonSteps(steps, text=text, keeps_value=keeps, strict=self.guard.mode == "fail")
        columns = [*flow.hidden, "__value"] if flow.shape is Shape.COLUMNS else flow.hidden
        if keeps:
            columns += list(flow.columns)
        df = with_text.df.select(*map(column, columns))
        serialized = any(step.how == "serialize" for step in chain)
        added = [*([] if TAG in columns else [TAG]), *([BODY] if serialized else []), ERROR]
        kinds = {BODY: BinaryType()}
        # A new schema: `add` would change the DataFrame's.
        schema = StructType(
            [*df.schema.fields, *(StructField(name, kinds.get(name, StringType())) for name in added)]
        )
        df = df.mapInArrow(python, schema)
        df = self.guard.without_errors(df, flow.error_unless_beat(F.col(ERROR)), last).drop(ERROR)
        tagged = flow.tagged or any(step.how in {"label", "key"} for step in chain)
        keyed = flow.keyed or any(step.how == "key" for step in chain)
        shares = flow.shares_identity or any(step.how == "flatMap" for step in chain)
        made = replace(flow, df=df, tagged=tagged, keyed=keyed, serialized=serialized, shares_identity=shares)
        if keeps:
            return replace(made, checked=not text)
        json = replace(made, shape=Shape.JSON, columns=(), checked=True)
        return json if last.schema is None else json.with_schema(last.schema, self.guard, last)

    # --- several sinks ------------------------------------------------------------------------

    def find_common_step(self) -> p.Node:
        """Return the last step that all sinks share and after which no step keeps state.

        Raises
        ------
        PlanError
            No such step exists.
        """
        sinks = self.plan.sinks
        if len(sinks) == 1:
            return sinks[0].input
        shared = set.intersection(*(set(p.walk_nodes(sink)) for sink in sinks))
        common = [node for node in self.analysis.nodes if node in shared]
        if not common:
            raise PlanError("the sinks have no step in common: use separate jobs", step=sinks[1].name)
        later = [node for node in self.analysis.nodes if node not in shared]
        state = next((node for node in later if isinstance(node, (*STATEFUL, p.Source))), None)
        if state is not None:
            raise PlanError(
                "several sinks share one query, which cannot keep state (windows, joins) for one of "
                "them: move that branch to a separate job",
                step=state.name,
            )
        return common[-1]


def _drop_case_twins(names: list[str], known: tuple[str, ...]) -> list[str]:
    """Omit names that differ from others only in case, because Spark ignores case."""
    found: dict[str, str] = {name.lower(): name for name in known}
    for name in names:
        found.setdefault(name.lower(), name)
    return list(found.values())


def _run_script(flow: Flow, lines: tuple[tuple[str, str], ...]) -> Flow:
    df, names = flow.df, list(flow.columns)
    for name, value in lines:
        df = df.withColumn(name, F.expr(value))
        # Spark replaces a column of another case.
        names = [name if known.lower() == name.lower() else known for known in names]
        names = names if name in names else [*names, name]
    return replace(flow, df=df, columns=tuple(names))


def _keep_types(flow: Flow, change: Callable[[Flow], Flow], changed: frozenset[str] = frozenset()) -> Flow:
    """Return a flow after a step that reads variants as texts: fields that it leaves keep theirs."""
    names = sorted(name for name in flow.variants if name.lower() not in changed)
    if not names:
        return change(flow.plain())
    copies = {name: f"__kept_{at}" for at, name in enumerate(names)}
    df = flow.df.withColumns({copy: column(name) for name, copy in copies.items()})
    made = change(replace(flow, df=df).plain())
    df = made.df.withColumns({name: column(copy) for name, copy in copies.items()}).drop(*copies.values())
    return replace(made, df=df)


def _with_common_types(left: Flow, right: Flow) -> tuple[Flow, Flow]:
    """Return both sides with JSON types for a field that is text, or has them, on one side only.

    Spark would cast a text to the other side's type, and end the query where it cannot.
    """
    names = {name.lower(): name for name in right.columns}
    for ours, theirs in ((name, names[name.lower()]) for name in left.columns if name.lower() in names):
        kinds = left.type_of(ours), right.type_of(theirs)
        if kinds[0] != kinds[1] and any(isinstance(kind, StringType | VariantType) for kind in kinds):
            left, right = left.with_json_type(ours), right.with_json_type(theirs)
    return left, right


def _find_same_split(node: p.Union) -> p.Select | None:
    """Return one selection for a union of selections of one split, so that the source is read once.

    None if they have a label in common: its records are in the union twice.
    """
    match node:
        case p.Union(left=p.Select() as left, right=p.Select() as right) if left.input is right.input:
            ours, theirs = ({_label(label) for label in side.labels} for side in (left, right))
            if ours.isdisjoint(theirs):
                return p.Select(name=node.name, input=left.input, labels=(*left.labels, *right.labels))
    return None


def _label(label: Any) -> str:
    """Return a label as it is compared."""
    return label if isinstance(label, str) else to_json(label)
