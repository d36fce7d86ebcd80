"""The servers of the tests themselves: what a kill and a restart leave as it was."""

import select
from pathlib import Path

import pika
import psycopg
import pytest
from confluent_kafka import Consumer, Producer
from sqlalchemy import create_engine, make_url, text

from services import memory, ports
from services.account import remove_folder
from services.catalog import OwnServers
from services.servers.postgresql import PostgreSQL
from support.servers import OwnServer


@pytest.fixture(params=["postgresql", "mariadb"])
def own_database(request: pytest.FixtureRequest) -> OwnServer:
    """A factory of database servers of each kind."""
    return request.getfixturevalue(f"own_{request.param}")


def run(url: str, *statements: str) -> list[object]:
    """Run the statements in one transaction and return the last one's first column."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            results = [connection.execute(text(statement)) for statement in statements]
            return list(results[-1].scalars()) if results[-1].returns_rows else []
    finally:
        engine.dispose()


@pytest.mark.server
def test_a_killed_database_keeps_its_committed_rows_and_its_url(own_database: OwnServer) -> None:
    """After SIGKILL and a start, the row is there under the same URL."""
    server = own_database()
    url = server.url
    run(url, "CREATE TABLE kept (number INTEGER)", "INSERT INTO kept VALUES (7)")
    server.kill()
    server.start()
    assert (run(url, "SELECT number FROM kept"), server.url) == ([7], url)


def test_a_killed_rabbitmq_keeps_its_durable_messages_and_its_url(own_rabbitmq: OwnServer) -> None:
    """After SIGKILL and a start, a confirmed persistent message is there under the same URL."""
    server = own_rabbitmq()
    url = server.url
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_declare("kept", durable=True)
    # A queue that was just declared may not be on the disk yet: only messages are confirmed.
    server.restart()
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "kept", b"7", pika.BasicProperties(delivery_mode=2), mandatory=True)
        server.kill()
        assert not server.running
        with pytest.raises(pika.exceptions.AMQPError):
            connection.process_data_events(time_limit=5)
    server.start()
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        _, _, body = connection.channel().basic_get("kept", auto_ack=True)
    assert (body, server.url) == (b"7", url)


def test_a_killed_kafka_keeps_its_confirmed_messages_and_its_url(own_kafka: OwnServer) -> None:
    """After SIGKILL and a start, a confirmed message is there under the same URL."""
    server = own_kafka()
    url = server.url
    login = make_url(url)
    client = {
        "bootstrap.servers": f"{login.host}:{login.port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": login.username,
        "sasl.password": login.password,
    }
    producer = Producer({**client, "acks": "all"})
    producer.produce("kept", b"7")
    assert producer.flush(60) == 0
    server.kill()
    assert not server.running
    server.start()
    consumer = Consumer({**client, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe(["kept"])
    message = next(found for _ in range(600) if (found := consumer.poll(0.1)) and not found.error())
    consumer.close()
    assert (message.value(), server.url) == (b"7", url)


def test_a_killed_server_is_gone_with_all_of_its_processes(own_postgresql: OwnServer) -> None:
    """kill() returns when nothing listens any more and no process is left."""
    server = own_postgresql()
    server.kill()
    assert not server.running
    assert ports.is_free(server.port)


def test_a_paused_server_lets_open_sessions_wait_until_it_is_resumed(own_postgresql: OwnServer) -> None:
    """pause() freezes sessions too, without closing them; resume() lets them go on."""
    server = own_postgresql()
    with psycopg.connect(
        make_url(server.url).set(drivername="postgresql").render_as_string(hide_password=False)
    ) as session:
        server.pause()
        session.pgconn.send_query(b"SELECT 1")
        session.pgconn.flush()
        assert not select.select([session.pgconn.socket], [], [], 0.3)[0]
        assert server.running
        server.resume()
        assert select.select([session.pgconn.socket], [], [], 30)[0]
        while session.pgconn.get_result() is not None:
            pass
    server.wait_ready()


def test_two_servers_of_one_kind_do_not_meet(own_postgresql: OwnServer) -> None:
    """Each has a port and tables of its own."""
    first, second = own_postgresql(), own_postgresql()
    run(first.url, "CREATE TABLE only_here (number INTEGER)")
    assert run(second.url, "SELECT count(*) FROM pg_tables WHERE tablename = 'only_here'") == [0]


def test_starting_twice_starts_one_server(own_postgresql: OwnServer) -> None:
    """A start of what runs leaves the running process alone."""
    server = own_postgresql()
    before = run(server.url, "SELECT pg_postmaster_start_time()")
    server.start()
    assert run(server.url, "SELECT pg_postmaster_start_time()") == before


@pytest.mark.server
def test_a_server_is_reached_where_its_user_could_not_traverse(tmp_path: Path) -> None:
    """Below a folder of ours alone the data stand elsewhere, and are removed from there too."""
    tmp_path.chmod(0o700)
    servers = OwnServers(tmp_path)
    server = servers.make(PostgreSQL)
    server.start()
    data = server.data
    servers.remove(server)
    assert not data.exists()


@pytest.mark.server
def test_the_data_of_databases_stand_in_memory_and_leave_it(own_database: OwnServer) -> None:
    """Where there is room; their files are removed from there with the server."""
    server = own_database()
    data = server.data
    assert data.is_relative_to(memory.roomy() or server.folder.resolve())
    server.remove()
    assert not data.exists()


@pytest.mark.parametrize(("kilobytes", "in_memory"), [(1_000_000, False), (10**12, True)])
def test_data_stand_on_the_disk_where_memory_is_short(
    tmp_path: Path, kilobytes: int, in_memory: bool
) -> None:
    """Memory that the machine needs for programs is not filled with databases."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: {10**12} kB\nMemAvailable: {kilobytes} kB\n")
    assert (memory.roomy(tmp_path, meminfo) is not None) == in_memory


def test_a_folder_of_data_is_removed_through_its_link(tmp_path: Path) -> None:
    """Neither the link nor what it points to is left."""
    real = tmp_path / "real"
    (real / "tables").mkdir(parents=True)
    link = tmp_path / "data"
    link.symlink_to(real)
    remove_folder(link)
    assert not real.exists()
    assert not link.is_symlink()
