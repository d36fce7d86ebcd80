"""An administrator's desk at a RocketMQ: topics, groups and settings to be examined, and accounts with few rights (ACL 2.0); names are the test's own."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from oncemq.common.problems import Problem
from oncemq.contracts.adapter import Subscription
from oncemq_adapters.rocketmq.remoting.admin.broker_settings import group_settings
from oncemq_adapters.rocketmq_client.admin import wait_for_route
from oncemq_adapters.rocketmq_client.codes import TEMPLATE, UPDATE_TOPIC
from support.brokers.rocketmq import adapter_on
from support.facts import facts_of

UPDATE_BROKER_CONFIG, UPDATE_GROUP = 25, 200
CREATE_USER, CREATE_RIGHTS = 3001, 3006


class Bench:
    """One topic and one group."""

    def __init__(self, url: str) -> None:
        self.topic, self.group_name = f"t{uuid4().hex[:8]}", f"g{uuid4().hex[:8]}"
        self._adapter = adapter_on(url)
        self._adapter.prepare(())
        self.broker = self._adapter._opened_desk().brokers.get("broker-a")

    def make_topic(self, **options: Any) -> None:
        """Make the topic as a start would."""
        self._adapter.prepare([Subscription("c", self.topic, "other", {"create": True, **options})])

    def make_batch_topic(self) -> None:
        """Make the topic as one that keeps batches."""
        fields = {
            "topic": self.topic,
            "defaultTopic": TEMPLATE,
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
            "attributes": "+queue.type=BatchCQ",
        }
        self.broker.call(UPDATE_TOPIC, fields)
        wait_for_route(self._adapter._opened_desk().routes, self.topic)

    def start(self, **options: Any) -> None:
        """Have made whatever a start makes for the group."""
        self._adapter.prepare([Subscription("c", self.topic, self.group_name, options)])

    def make_group(self, **settings: Any) -> None:
        """Make the group, or change it."""
        wanted = {"groupName": self.group_name, "consumeEnable": True, "retryQueueNums": 1, **settings}
        self.broker.call(UPDATE_GROUP, {}, json.dumps(wanted).encode())

    def group(self) -> Mapping[str, Any] | None:
        """Return the group's settings."""
        return group_settings(self.broker, self.group_name)

    def configure(self, **settings: str) -> None:
        """Change the broker's configuration while it runs."""
        body = "".join(f"{name}={value}\n" for name, value in settings.items())
        self.broker.call(UPDATE_BROKER_CONFIG, {}, body.encode())

    def set_back(self) -> None:
        """Have the broker's configuration as it was."""
        self.configure(autoCreateSubscriptionGroup="true", timerWheelEnable="true")
        self.configure(fileReservedTime="72", timerMaxDelaySec="259200")

    def examine(self, options: Mapping[str, Any] | None = None, **facts: Any) -> list[Problem]:
        """Return what is found."""
        return list(
            self._adapter.examine(facts_of(self.topic, self.group_name, options=options or {}, **facts))
        )

    def close(self) -> None:
        """Disconnect."""
        self._adapter.close(grace=timedelta(seconds=1))


def account_url(url: str, **rights: str) -> str:
    """Return `url` with the login of a new account.

    Args:
        url: the administrator's.
        rights: actions by resource, such as `{"Topic:orders": "Sub"}`; several are separated by commas.
    """
    name, password = f"u{uuid4().hex[:10]}", uuid4().hex
    user = {"username": name, "password": password, "userType": "Normal", "userStatus": "enable"}
    adapter = adapter_on(url)
    try:
        adapter.prepare(())
        desk = adapter._opened_desk()
        for broker in desk.routes.brokers():
            connection = desk.brokers.get(broker)
            connection.call(CREATE_USER, {"username": name}, json.dumps(user).encode())
            if rights:
                body = json.dumps(_policies(f"User:{name}", rights)).encode()
                connection.call(CREATE_RIGHTS, {"subject": f"User:{name}"}, body)
    finally:
        adapter.close(grace=timedelta(seconds=1))
    parts = urlsplit(url)
    return f"{parts.scheme}://{name}:{password}@{parts.hostname}:{parts.port}"


def _policies(subject: str, rights: dict[str, str]) -> dict[str, object]:
    entries = [
        {"resource": resource, "actions": actions.split(","), "sourceIps": [], "decision": "Allow"}
        for resource, actions in rights.items()
    ]
    return {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]}
