"""Requests that create, describe and delete topics, groups, users and settings at a broker."""

from __future__ import annotations

from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.header.base import RequestHeader, ResponseHeader, header

__all__ = [
    "CreateAclRequest",
    "CreateTopicRequest",
    "CreateUserRequest",
    "DeleteSubscriptionGroupRequest",
    "DeleteTopicRequest",
    "DeleteUserRequest",
    "GetAllSubscriptionGroupRequest",
    "GetAllTopicConfigRequest",
    "GetBrokerConfigRequest",
    "GetBrokerConfigResponse",
    "GetBrokerRuntimeInfoRequest",
    "GetSubscriptionGroupConfigRequest",
    "GetTopicConfigRequest",
    "UpdateAndCreateSubscriptionGroupRequest",
    "UpdateBrokerConfigRequest",
]


@header
class CreateTopicRequest(RequestHeader):
    """``CreateTopicRequestHeader``: create a topic at a broker, or change it; 29 for a bad name.

    ``attributes`` is a comma list of ``+key=value`` and ``-key``; a bad one is 1.
    """

    CODE = RequestCode.UPDATE_AND_CREATE_TOPIC

    topic: str
    default_topic: str = "TBW102"
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: str | None = None


@header
class DeleteTopicRequest(RequestHeader):
    """``DeleteTopicRequestHeader``: delete a topic at a broker; also 0 if there was none."""

    CODE = RequestCode.DELETE_TOPIC_IN_BROKER

    topic: str


@header
class GetTopicConfigRequest(RequestHeader):
    """``GetTopicConfigRequestHeader``: a topic's settings (5.x; 3 on 4.9); 17 if unknown."""

    CODE = RequestCode.GET_TOPIC_CONFIG

    topic: str


@header
class GetAllTopicConfigRequest(RequestHeader):
    """``GetAllTopicConfigRequestHeader`` without its paging: the settings of all topics."""

    CODE = RequestCode.GET_ALL_TOPIC_CONFIG


@header
class UpdateAndCreateSubscriptionGroupRequest(RequestHeader):
    """Create a group, or change it; the body is its settings; has no Java header class."""

    CODE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


@header
class GetSubscriptionGroupConfigRequest(RequestHeader):
    """``GetSubscriptionGroupConfigRequestHeader``: a group's settings (5.x); creates the group if it may."""

    CODE = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG

    group: str


@header
class GetAllSubscriptionGroupRequest(RequestHeader):
    """``GetAllSubscriptionGroupRequestHeader`` without its paging: all groups, creating none."""

    CODE = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG


@header
class DeleteSubscriptionGroupRequest(RequestHeader):
    """``DeleteSubscriptionGroupRequestHeader``: delete a group; also 0 if there was none."""

    CODE = RequestCode.DELETE_SUBSCRIPTIONGROUP

    group_name: str
    clean_offset: bool = True


@header
class GetBrokerRuntimeInfoRequest(RequestHeader):
    """Version, positions and rates of a broker; has no Java header class."""

    CODE = RequestCode.GET_BROKER_RUNTIME_INFO


@header
class GetBrokerConfigRequest(RequestHeader):
    """A broker's settings as properties text; has no Java header class."""

    CODE = RequestCode.GET_BROKER_CONFIG


@header
class GetBrokerConfigResponse(ResponseHeader):
    """``GetBrokerConfigResponseHeader``: the data version of the settings."""

    version: str | None = None


@header
class UpdateBrokerConfigRequest(RequestHeader):
    """Change a broker's settings, given as properties text.

    The broker ignores unknown keys and bad values, with code 0.
    """

    CODE = RequestCode.UPDATE_BROKER_CONFIG


@header
class CreateUserRequest(RequestHeader):
    """``CreateUserRequestHeader`` (5.3): the body has name, password, type and status; 16 if it exists."""

    CODE = RequestCode.AUTH_CREATE_USER

    username: str


@header
class DeleteUserRequest(RequestHeader):
    """``DeleteUserRequestHeader`` (5.3)."""

    CODE = RequestCode.AUTH_DELETE_USER

    username: str


@header
class CreateAclRequest(RequestHeader):
    """``CreateAclRequestHeader`` (5.3): the body has the policies of a subject such as ``User:name``."""

    CODE = RequestCode.AUTH_CREATE_ACL

    subject: str
