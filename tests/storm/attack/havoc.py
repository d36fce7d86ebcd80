"""What is done to servers and connections during a storm; every fault returns whether it is known to have happened."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

import pika
from sqlalchemy import make_url

from oncemq.testing.tcp_proxy import LOOPBACK, TcpProxy
from services.servers.rabbitmq import RabbitMQ, _script
from storm.attack.stage import wait_for
from support.brokers.places import Place


@dataclass(frozen=True, slots=True)
class Field:
    """Servers that may be broken, and the proxies through which every process under attack reaches them.

    Args:
        rabbitmq: the broker.
        database: the database server.
        to_rabbitmq: in front of the broker.
        to_database: in front of the database server.
        place: how the test itself reaches them: directly.
    """

    rabbitmq: Any
    database: Any
    to_rabbitmq: TcpProxy
    to_database: TcpProxy
    place: Place

    @property
    def environment(self) -> dict[str, str]:
        """What the app's YAML expands: the proxies."""
        broker = self.rabbitmq.url.replace(f":{self.rabbitmq.port}", f":{self.to_rabbitmq.port}")
        database = make_url(self.place.database).set(host=LOOPBACK, port=self.to_database.port)
        return {"BROKER": broker, "DATABASE": database.render_as_string(hide_password=False)}

    def close(self) -> None:
        """End the proxies."""
        self.to_rabbitmq.close()
        self.to_database.close()


def field_of(rabbitmq: Any, server: Any, database: str, name: str, folder: Path) -> Field:
    """Return servers with fresh proxies."""
    place = Place(rabbitmq.url, database, name, folder)
    return Field(rabbitmq, server, TcpProxy(LOOPBACK, rabbitmq.port), TcpProxy(LOOPBACK, server.port), place)


def kill_broker(field: Field) -> bool:
    """SIGKILL the broker and start it again."""
    return kill_server(field.rabbitmq)


def kill_database(field: Field) -> bool:
    """SIGKILL the database and start it again."""
    return kill_server(field.database)


def kill_server(server: Any) -> bool:
    """SIGKILL all processes of a server and start them again."""
    server.kill()
    away = not server.answers()
    server.start()
    return away


def cut_broker(field: Field) -> bool:
    """Reset every connection to the broker."""
    return _cut(field.to_rabbitmq)


def cut_database(field: Field) -> bool:
    """Reset every connection to the database."""
    return _cut(field.to_database)


def _cut(proxy: TcpProxy) -> bool:
    wait_for(lambda: proxy.connections, "a connection to cut")
    connected = proxy.connections
    proxy.cut()
    return connected > 0


def slow_network(field: Field) -> bool:
    """Let every piece of data take 30 ms for two seconds."""
    wait_for(lambda: field.to_rabbitmq.connections and field.to_database.connections, "connections")
    for proxy in (field.to_rabbitmq, field.to_database):
        proxy.slow_down(0.03)
    Event().wait(2)
    for proxy in (field.to_rabbitmq, field.to_database):
        proxy.slow_down(0)
    return True


def lose_database_answers(field: Field) -> bool:
    """Drop the database's answers, commits' among them, and then the connections."""
    return _lose_answers(field.to_database)


def lose_broker_answers(field: Field) -> bool:
    """Drop the broker's confirmations and deliveries, and then the connections."""
    return _lose_answers(field.to_rabbitmq)


def _lose_answers(proxy: TcpProxy) -> bool:
    lost = proxy.answers_lost
    end = monotonic() + 20
    while proxy.answers_lost == lost and monotonic() < end:
        proxy.lose_answers()
        Event().wait(0.2)
    proxy.cut()
    return proxy.answers_lost > lost


def half_open(field: Field) -> bool:
    """Have the broker's end of every connection vanish; only silence tells."""
    wait_for(lambda: field.to_rabbitmq.connections, "a connection to strand")
    stranded = field.to_rabbitmq.strand()
    Event().wait(5)
    field.to_rabbitmq.cut()
    return stranded > 0


def memory_alarm(field: Field) -> bool:
    """Have the broker block publishing connections for some seconds."""
    _control(field.rabbitmq, "set_vm_memory_high_watermark", "0.00001")
    try:
        blocked = _is_blocked(field.rabbitmq.url)
        Event().wait(2)
    finally:
        _control(field.rabbitmq, "set_vm_memory_high_watermark", "0.8")
    return blocked


def _control(server: RabbitMQ, *words: str) -> None:
    script = _script()
    if script is None:
        raise AssertionError("rabbitmqctl is not there")
    program = Path(script).with_name("rabbitmqctl")
    arguments = server.account.popen_arguments()
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8", **server.environment}
    done = subprocess.run(
        [str(program), "-q", *words],
        env=environment,
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
        **arguments,
    )
    assert done.returncode == 0, done.stderr + done.stdout


def _is_blocked(url: str) -> bool:
    """Return whether the broker says so to a connection that publishes."""
    blocked: list[object] = []
    connection = pika.BlockingConnection(pika.URLParameters(url))
    connection.add_on_connection_blocked_callback(lambda *_: blocked.append(1))
    connection.channel().basic_publish("", "nowhere", b"x")
    end = monotonic() + 5
    while not blocked and monotonic() < end:
        connection.process_data_events(0.1)
    # A blocked connection does not answer a close in order: leave it.
    Thread(target=_close, args=(connection,), daemon=True).start()
    return bool(blocked)


def _close(connection: Any) -> None:
    connection.close()


FAULTS: dict[str, Callable[[Field], bool]] = {
    "database connections cut": cut_database,
    "broker killed": kill_broker,
    "database answers lost": lose_database_answers,
    "database killed": kill_database,
    "broker connections cut": cut_broker,
    "memory alarm": memory_alarm,
    "half-open broker connections": half_open,
    "network slow": slow_network,
    "broker answers lost": lose_broker_answers,
}
"""In an order that mixes them."""
