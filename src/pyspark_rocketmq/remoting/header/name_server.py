"""Requests that a name server answers."""

from __future__ import annotations

from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.header.base import RequestHeader, header

__all__ = [
    "DeleteTopicFromNamesrvRequest",
    "GetAllTopicListFromNameserverRequest",
    "GetBrokerClusterInfoRequest",
    "GetRouteInfoRequest",
    "GetTopicsByClusterRequest",
]


@header
class GetRouteInfoRequest(RequestHeader):
    """``GetRouteInfoRequestHeader``: a topic's route; a broker answers 3, an unknown topic is 17."""

    CODE = RequestCode.GET_ROUTEINFO_BY_TOPIC

    topic: str
    accept_standard_json_only: bool | None = True


@header
class GetBrokerClusterInfoRequest(RequestHeader):
    """Every broker by cluster; has no Java header class."""

    CODE = RequestCode.GET_BROKER_CLUSTER_INFO


@header
class GetAllTopicListFromNameserverRequest(RequestHeader):
    """The names of all topics, those of the system included; has no Java header class."""

    CODE = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


@header
class GetTopicsByClusterRequest(RequestHeader):
    """``GetTopicsByClusterRequestHeader``: the names of a cluster's topics."""

    CODE = RequestCode.GET_TOPICS_BY_CLUSTER

    cluster: str


@header
class DeleteTopicFromNamesrvRequest(RequestHeader):
    """``DeleteTopicFromNamesrvRequestHeader``: drop a topic's route; also 0 if there was none."""

    CODE = RequestCode.DELETE_TOPIC_IN_NAMESRV

    topic: str
    cluster_name: str | None = None
