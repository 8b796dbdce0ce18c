"""``pyspark-rocketmq dashboard``: live metrics of queries and the cluster in a browser."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote

import typer

from pyspark_rocketmq.cli.connect import Host, Namesrv, Port, Settings, client_options, is_cluster_given
from pyspark_rocketmq.cli.printing import AsJson, examples, print_json
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.http_access import choose_token

__all__ = ["EXAMPLES", "dashboard"]

EXAMPLES: Final = examples(
    "dashboard --query-log /var/log/queries",
    "dashboard --spark http://driver:4040 -n 10.0.0.1:9876",
    "dashboard -n 10.0.0.1:9876 --dead-letters orders-dead",
    "dashboard --query-log /var/log/queries --host 0.0.0.0 --port 8400",
)


def dashboard(
    query_log: Annotated[
        Path | None,
        typer.Option(help="The folder of a session's `QueryLog`.", file_okay=False, exists=True),
    ] = None,
    spark: Annotated[
        str | None, typer.Option(help="Address of a Spark UI, in place of a query log; shows less.")
    ] = None,
    dead_letters: Annotated[str | None, typer.Option(help="Count this topic's messages separately.")] = None,
    host: Host = "127.0.0.1",
    port: Port = 8400,
    token: Annotated[
        str | None,
        typer.Option(
            help="Access token; generated if --host is not local.", envvar="ROCKETMQ_DASHBOARD_TOKEN"
        ),
    ] = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Serve a read-only page that shows running queries and the cluster, until Ctrl-C.

    With --query-log it shows queries that log their progress: `spark.streams.addListener(QueryLog(folder))`.
    With --spark it shows the queries of a driver that sets spark.sql.streaming.metricsEnabled=true, without
    the lag per queue.
    """
    token = choose_token(token, host)
    try:
        from pyspark_rocketmq.dashboard.cluster import ClusterView
        from pyspark_rocketmq.dashboard.history import QueryLogReader
        from pyspark_rocketmq.dashboard.server import create_app, listen, serve
        from pyspark_rocketmq.dashboard.spark_metrics import SparkMetrics
    except ModuleNotFoundError as error:
        raise OptionError(
            f"{error.name} is not installed: pip install 'pyspark-rocketmq[dashboard]'"
        ) from error
    given = is_cluster_given(namesrv, option)
    if query_log is not None and spark is not None:
        raise OptionError("queries come from a log or from Spark's UI: give --query-log or --spark")
    if query_log is None and spark is None and not given:
        raise OptionError("there is nothing to show: give --query-log or --spark, --namesrv, or both")
    if dead_letters is not None and not given:
        raise OptionError("--dead-letters needs --namesrv, or NAMESRV_ADDR in the environment")
    queries = QueryLogReader(query_log) if query_log else SparkMetrics(spark) if spark else None
    with contextlib.ExitStack() as resources:
        cluster = None
        if given:
            cluster = ClusterView(client_options(namesrv, option), dead_letters=dead_letters)
            resources.callback(cluster.close)
        sock = resources.enter_context(listen(host, port))
        shown = f"[{host.strip('[]')}]" if ":" in host else host
        url = f"http://{shown}:{sock.getsockname()[1]}/" + (f"?token={quote(token)}" if token else "")
        if json:
            print_json({"url": url})
        else:
            typer.echo(f"{url}  (Ctrl-C ends it)")
        serve(create_app(queries, cluster, token=token), sock)
