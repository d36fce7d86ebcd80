"""Engines have the settings that the rules ask for; what is wrong is said in words without secrets."""

import builtins
from contextlib import ExitStack
from pathlib import Path

import pytest
from pymysql import _auth
from sqlalchemy import create_engine, event, make_url

from oncemq.errors import ConfigError, InfrastructureError, LedgerError, MissingExtra, OnceMQError
from oncemq.ledger.database.engine import USUAL_CONNECTIONS, make_engine, prove, startup_warnings

CANARY = "canary-5f1d"


def message_of(url: str, **options: str) -> OnceMQError:
    """Return the error of connecting to `url`."""
    with pytest.raises(OnceMQError) as caught:
        prove(make_engine(url, **options))
    assert CANARY not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+asyncpg://localhost/shop",
        "postgresql+psycopg_async://localhost/shop",
        "sqlite+aiosqlite:///x",
    ],
)
def test_drivers_for_event_loops_are_refused(url: str) -> None:
    """Installed or not: the words say what to write."""
    scheme = url.partition("+")[0]
    with pytest.raises(ConfigError, match=f"event loops.*write {scheme}://"):
        make_engine(url)


@pytest.mark.parametrize("url", ["mysql+mysqlconnector://host/x", "mariadb+mysqldb://host/x"])
def test_untested_drivers_of_mysql_are_refused(url: str) -> None:
    """They would pass every check and fail at every message; the words say what to write."""
    with pytest.raises(ConfigError, match=r"not tested with.*write \w+\+pymysql://"):
        make_engine(url)


def test_the_pool_keeps_what_it_opened(sqlite_database: str) -> None:
    """A connection that all need at once is not opened and closed again each time."""
    engine, opened = make_engine(sqlite_database), list[object]()
    event.listen(engine, "connect", lambda connection, _record: opened.append(connection))
    for _ in range(3):
        with ExitStack() as together:
            for _ in range(USUAL_CONNECTIONS):
                together.enter_context(engine.connect())
    engine.dispose()
    assert len(opened) == USUAL_CONNECTIONS


def test_sqlite_settings(sqlite_database: str) -> None:
    """WAL, full synchronization, foreign keys, and a wait for locks."""
    engine = make_engine(sqlite_database)
    with engine.connect() as connection:
        values = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    engine.dispose()
    assert values == ["wal", 2, 1, 10_000]


def test_sqlite_transactions_wait_for_each_other(sqlite_database: str) -> None:
    """A transaction that reads first and writes then does not fail when a rival wrote meanwhile."""
    engine = make_engine(sqlite_database)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a)")
    with engine.begin() as first:
        first.exec_driver_sql("SELECT * FROM t").all()
        rival = create_engine(sqlite_database, connect_args={"timeout": 0})
        with pytest.raises(Exception, match="locked"), rival.begin() as second:
            second.exec_driver_sql("INSERT INTO t VALUES (1)")
        first.exec_driver_sql("INSERT INTO t VALUES (2)")
        rival.dispose()
    engine.dispose()


KEEPALIVES = ("idle", "interval", "count")


def test_postgresql_settings(postgresql_database: str) -> None:
    """READ COMMITTED, a lock time-out, and a server that asks whether we are there; also after a rollback."""
    engine = make_engine(postgresql_database)
    names = (
        "transaction_isolation",
        "lock_timeout",
        *(f"tcp_keepalives_{setting}" for setting in KEEPALIVES),
    )
    for _ in range(2):
        with engine.connect() as connection:
            shown = [connection.exec_driver_sql(f"SHOW {name}").scalar() for name in names]
            connection.rollback()
        assert shown == ["read committed", "10s", "5", "5", "2"]
    engine.dispose()


def test_mariadb_settings(mariadb_database: str) -> None:
    """READ COMMITTED, a lock time-out, strict values."""
    engine = make_engine(mariadb_database)
    with engine.connect() as connection:
        isolation = "tx_isolation" if connection.dialect.is_mariadb else "transaction_isolation"  # type: ignore[attr-defined]
        row = connection.exec_driver_sql(
            f"SELECT @@{isolation}, @@innodb_lock_wait_timeout, @@sql_mode LIKE '%%STRICT_ALL_TABLES%%'"
        ).one()
    assert tuple(row) == ("READ-COMMITTED", 10, 1)
    engine.dispose()


def test_username_and_password_replace_those_of_the_url() -> None:
    """What the options say wins, and the password is not shown."""
    engine = make_engine("postgresql://other@localhost/shop", username="me", password=CANARY)
    assert (engine.url.username, engine.url.password) == ("me", CANARY)
    assert CANARY not in repr(engine)
    assert CANARY not in str(engine.url)


def test_urls_need_no_driver() -> None:
    """The driver that the extras bring is meant when none is named."""
    assert make_engine("postgresql://localhost/shop").driver == "psycopg"
    assert make_engine("mysql://localhost/shop").driver == "pymysql"
    assert make_engine("mariadb://localhost/shop").driver == "pymysql"


@pytest.mark.parametrize("url", ["postgres//", "oracle://x/y", "", f"http://u:{CANARY}@h/x", f"{CANARY}"])
def test_a_wrong_url_is_refused(url: str) -> None:
    """What is no database URL is a configuration error that shows how one looks."""
    with pytest.raises(ConfigError, match=r"postgresql://") as caught:
        make_engine(url)
    assert CANARY not in str(caught.value)


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact install line stands in the error."""
    plain = builtins.__import__

    def without_driver(name: str, *rest: object) -> object:
        if name == "pymysql":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return plain(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without_driver)
    with pytest.raises(MissingExtra, match=r"pip install 'oncemq\[mysql\]'"):
        make_engine(f"mysql://u:{CANARY}@localhost/shop")


def test_a_missing_package_for_passwords_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyMySQL alone cannot send MySQL 8 a password without TLS, and says so by a RuntimeError."""
    monkeypatch.setattr(_auth, "_have_cryptography", False)
    engine = make_engine(f"mysql://u:{CANARY}@localhost/shop")

    @event.listens_for(engine, "do_connect")
    def connect(*_: object) -> None:
        _auth.sha2_rsa_encrypt(CANARY.encode(), b"salt", b"key")

    with pytest.raises(MissingExtra, match=r"'cryptography'.*pip install 'oncemq\[mysql\]'") as caught:
        prove(engine)
    assert CANARY not in str(caught.value)


def test_a_missing_certificate_is_said(tmp_path: Path) -> None:
    """The driver's error alone does not tell where its file was named."""
    error = message_of(f"mysql://u:{CANARY}@127.0.0.1:1/shop?ssl_ca={tmp_path}/no.pem")
    assert isinstance(error, LedgerError)
    assert "ssl_ca" in str(error)


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_an_unreachable_server_is_infrastructure(scheme: str) -> None:
    """No one listens: trying again may help, and the address is named."""
    error = message_of(f"{scheme}://u:{CANARY}@127.0.0.1:1/shop")
    assert isinstance(error, InfrastructureError)
    assert "127.0.0.1:1" in str(error)


@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
@pytest.mark.server
def test_a_wrong_password_is_said(server: str, request: pytest.FixtureRequest) -> None:
    """The user is named, the password is not, and where to look is said."""
    error = message_of(request.getfixturevalue(f"{server}_url"), password=CANARY)
    assert isinstance(error, LedgerError)
    assert "'oncemq'" in str(error)
    assert "password" in str(error)


@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
@pytest.mark.server
def test_a_missing_database_is_said(server: str, request: pytest.FixtureRequest) -> None:
    """The error says that it must be created."""
    url = make_url(request.getfixturevalue(f"{server}_url")).set(database="nowhere")
    error = message_of(url.render_as_string(hide_password=False))
    assert isinstance(error, LedgerError)
    assert "create it" in str(error)


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    """SQLite makes files, not folders."""
    assert "folder" in str(message_of(f"sqlite:///{tmp_path}/no/such.db"))


def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    """Another file is not overwritten."""
    file = tmp_path / "letter.txt"
    file.write_text("Dear reader, " * 100)
    assert "not an SQLite database" in str(message_of(f"sqlite:///{file}"))


def test_lossy_settings_are_warned_of(postgresql_database: str) -> None:
    """Commits that can be lost after they were acknowledged are worth a warning at every start."""
    plain = make_engine(postgresql_database)
    assert startup_warnings(plain) == []
    plain.dispose()
    lossy = make_engine(f"{postgresql_database}?options=-csynchronous_commit%3Doff")
    (warning,) = startup_warnings(lossy)
    assert "synchronous_commit" in warning
    lossy.dispose()


def test_mariadb_tables_without_transactions_are_warned_of(mariadb_database: str) -> None:
    """A handler's writes into a MyISAM table survive the roll-back of their unit."""
    engine = make_engine(mariadb_database)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE points (id INTEGER) ENGINE=MyISAM")
    (warning,) = startup_warnings(engine)
    assert "ALTER TABLE points ENGINE=InnoDB" in warning
    engine.dispose()


def test_a_database_in_memory_is_warned_of() -> None:
    """It is one connection, shared in turn, and gone at the end."""
    engine = make_engine("sqlite://")
    (warning,) = startup_warnings(engine)
    assert "memory" in warning
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a)")
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM t").scalar() == 0
    engine.dispose()
