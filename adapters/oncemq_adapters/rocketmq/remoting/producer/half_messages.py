"""Transactional messages: held by their broker as half messages, until they are committed or rolled back.

A broker without that notice asks a live member of the producer group. So the group has the ledger's id in its name:
an app with another ledger is never asked about transactions that it cannot know.
"""

import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import structlog

from oncemq.contracts.adapter import AdapterScope
from oncemq.contracts.transactional_messages import Decision, Held
from oncemq.errors import BrokerRefused, BrokerUnavailable
from oncemq.message.envelope import OutgoingMessage
from oncemq_adapters.rocketmq.address import Address
from oncemq_adapters.rocketmq.errors import FAILURES, translating
from oncemq_adapters.rocketmq.names import parse_topic
from oncemq_adapters.rocketmq.properties import check_size, for_publishing
from oncemq_adapters.rocketmq.remoting.admin.topics_and_groups import ensure_topic
from oncemq_adapters.rocketmq.remoting.withheld_brokers import withheld_brokers
from oncemq_adapters.rocketmq_client import codes
from oncemq_adapters.rocketmq_client.admin import connect_all
from oncemq_adapters.rocketmq_client.codes import Place
from oncemq_adapters.rocketmq_client.connections import Routes, TimerThread, spread_of
from oncemq_adapters.rocketmq_client.errors import Denied, MalformedFrame, surfaced
from oncemq_adapters.rocketmq_client.names import in_namespace
from oncemq_adapters.rocketmq_client.properties import to_text
from oncemq_adapters.rocketmq_client.protocol import (
    Connection,
    Fields,
    Frame,
    Outgoing,
    decode,
    pack,
    producer_heartbeat_body,
    send_fields,
)

_HALF: Final = 4
"""The flag of a message that is held."""

_SAYS: Final = {Decision.COMMIT: "8", Decision.ROLL_BACK: "12", Decision.UNKNOWN: "0"}
_PAUSES = (0.05, 0.2, 0.8)
_OFFSET_DIGITS = 16


@translating
class HalfMessages:
    """A member of a producer group that holds messages and answers for them.

    Args:
        address: how to connect.
        scope: the app's name, and the clock.
        ledger: its id, part of the producer group's name.
        decide: returns what became of a transaction.

    Raises:
        BrokerError: there is no connection, or we are not welcome.
    """

    def __init__(
        self, address: Address, scope: AdapterScope, ledger: str, decide: Callable[[str], Decision]
    ) -> None:
        name = re.sub(r"[^A-Za-z0-9_-]", "-", f"oncemq-{scope.app}-{ledger}")
        self._group = in_namespace(address.namespace, name)
        self._namespace = address.namespace
        self._clock = scope.clock
        self._decide = decide
        self._limit = address.publish_timeout.total_seconds()
        self._client = f"{socket.gethostname()}@{os.getpid()}@{os.urandom(4).hex()}"
        self._routes = Routes(address)
        self._brokers = withheld_brokers(address, self._routes, self._hello, self._asked)
        self._known: set[str] = set()
        self._beats = TimerThread("oncemq-rocketmq-held")
        self._answers = TimerThread("oncemq-rocketmq-answers")
        try:
            connect_all(self._routes, self._brokers)
        except BaseException:
            self.close()
            raise
        self._beats.every(address.heartbeat.total_seconds(), self._beat)
        self._beats.start()
        self._answers.start()

    def hold(self, topic: str, options: Mapping[str, Any], message: OutgoingMessage) -> Held:
        """Store a half message; its broker waits for the decision."""
        if not message.body:
            raise BrokerRefused("RocketMQ accepts no message with an empty body")
        if message.delay is not None:
            raise BrokerRefused("RocketMQ cannot hold a message for a transaction and then delay it")
        declared = parse_topic(topic, options, self._namespace)
        if declared.name not in self._known:
            ensure_topic(self._routes, self._brokers, declared)
            self._known.add(declared.name)
        own_id = os.urandom(16).hex().upper()
        properties = for_publishing(message, self._clock.now(), own_id)
        check_size(properties)
        properties |= {"TRAN_MSG": "true", "PGROUP": self._group, "WAIT": "true"}
        place = self._place_of(declared.name, message.key, own_id)
        outgoing = Outgoing(declared.name, message.body, properties, place)
        return Held(own_id, topic, self._store(outgoing, place))

    def finish(self, held: Held, *, commit: bool, again: bool = False) -> None:
        """Tell the broker that holds it, and wait until it says that it has understood."""
        try:
            place = json.loads(held.place)
            fields = {**place["fields"], "msgId": held.id, "transactionId": held.id}
            broker = str(place["broker"])
        except (ValueError, KeyError, TypeError) as error:
            raise BrokerRefused(f"{held.place!r} is not a place where RocketMQ holds a message") from error
        fields["commitOrRollback"] = _SAYS[Decision.COMMIT if commit else Decision.ROLL_BACK]
        fields["fromTransactionCheck"] = "true" if again else "false"
        if broker not in self._routes.masters:
            self._routes.brokers()
        try:
            self._brokers.get(broker).call(codes.END_TRANSACTION, fields, timeout=self._limit)
        except Denied as denied:
            raise surfaced(denied) from denied

    def close(self) -> None:
        """Disconnect."""
        self._beats.stop(5.0)
        self._answers.stop(5.0)
        self._brokers.close()
        self._routes.close()

    def _place_of(self, topic: str, key: str | None, own_id: str) -> Place:
        places = self._routes.find(topic).writable
        if not places:
            raise BrokerRefused(f"topic {topic!r} of RocketMQ has no queue that can be written to")
        return places[spread_of(own_id if key is None else key, len(places))]

    def _store(self, outgoing: Outgoing, place: Place) -> str:
        """Send until the broker is not too busy; returns where it has the message."""
        broker, queue = place
        body, system = pack(outgoing.body)
        text = to_text(outgoing.properties)
        fields = send_fields(self._group, outgoing, queue, system | _HALF, text)
        deadline = time.monotonic() + self._limit
        for pause in (*_PAUSES, None):
            try:
                answer, _ = self._brokers.get(broker).call(codes.SEND_MESSAGE, fields, body, self._limit)
                return self._where(outgoing.topic, broker, answer)
            except Denied as denied:
                if denied.code in codes.STORED:
                    return self._where(outgoing.topic, broker, denied.fields)
                if denied.code == codes.NO_TOPIC:
                    self._routes.forget(outgoing.topic)
                busy = denied.code in codes.BUSY
                if not busy or pause is None or time.monotonic() + pause > deadline:
                    raise surfaced(denied) from denied
            time.sleep(pause)
        raise BrokerUnavailable("RocketMQ is too busy to accept the message")

    def _where(self, topic: str, broker: str, answer: Fields) -> str:
        try:
            fields = {
                "topic": topic,
                "producerGroup": self._group,
                "tranStateTableOffset": answer["queueOffset"],
                # A stored message's id ends with its place in the broker's log.
                "commitLogOffset": str(int(answer["msgId"][-_OFFSET_DIGITS:], 16)),
            }
        except (KeyError, ValueError) as error:
            raise MalformedFrame("RocketMQ does not say where it holds the message") from error
        return json.dumps({"broker": broker, "fields": fields})

    def _asked(self, broker: str, frame: Frame) -> None:
        """Take a broker's question; the answer may have to wait for a database, so not on this thread."""
        if frame.code == codes.CHECK_TRANSACTION:
            self._answers.at(0, self._answer, broker, frame)

    def _answer(self, broker: str, frame: Frame) -> None:
        own_id = frame.fields.get("transactionId") or frame.fields.get("msgId", "")
        with suppress(*FAILURES):
            topic = decode(frame.body, "").messages[0].topic
            decision = self._decision(own_id)
            fields = {
                "topic": topic,
                "producerGroup": self._group,
                "tranStateTableOffset": frame.fields.get("tranStateTableOffset", ""),
                "commitLogOffset": frame.fields.get("commitLogOffset", ""),
                "commitOrRollback": _SAYS[decision],
                "fromTransactionCheck": "true",
                "msgId": own_id,
                "transactionId": own_id,
            }
            self._brokers.get(broker).submit(codes.END_TRANSACTION, fields)

    def _decision(self, transaction: str) -> Decision:
        try:
            return self._decide(transaction)
        except Exception:
            structlog.get_logger("oncemq").exception("asking the ledger about a transaction failed")
            return Decision.UNKNOWN

    def _hello(self, connection: Connection) -> None:
        connection.call(codes.HEARTBEAT, {}, producer_heartbeat_body(self._client, self._group))

    def _beat(self) -> None:
        """Be there on every broker: one that restarted may ask about what it held before."""
        with suppress(*FAILURES):
            self._routes.brokers()
        self._routes.refresh()
        for name in list(self._routes.masters):
            with suppress(*FAILURES):
                connection = self._brokers.get(name)
                try:
                    self._hello(connection)
                except FAILURES as error:
                    connection.close(error)
