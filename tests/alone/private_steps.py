"""Steps of random programs that nothing of SQLAlchemy shows: settings, the driver's own connection, hidden commits."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import inspect, text

from alone.steps import Doing, Step
from alone.world import ELSEWHERE, kind_of

_TENANT = {
    "postgresql": "SELECT coalesce(current_setting('app.tenant', true), '')",
    "mysql": "SELECT coalesce(@tenant, '')",
    "sqlite": "SELECT 'a' LIKE 'A'",
}
_PLACE = {
    "postgresql": "SELECT current_schema() || ' ' || current_setting('TimeZone') || ' ' || left(current_user, 11)",
    "mysql": "SELECT concat(right(database(), 9) = 'elsewhere', ' ', @@time_zone, ' ', @@sql_mode = '')",
    "sqlite": "SELECT count(*) FROM sqlite_temp_master",
}
_SETTING = {
    "postgresql": (
        "SELECT set_config('app.tenant', '{tenant}', true)",
        "SELECT set_config('app.tenant', '{tenant}', false)",
        "SET app.tenant = '{tenant}'",
        "SET LOCAL app.tenant = '{tenant}'",
        f"SET search_path = {ELSEWHERE}",
        f"SET LOCAL search_path = {ELSEWHERE}, public",
        f"SELECT set_config('search_path', '{ELSEWHERE}', true)",
        "SET TIME ZONE 'Asia/Tokyo'",
        "SET statement_timeout = '50s'",
        "SET CONSTRAINTS ALL IMMEDIATE",
        "CREATE TEMPORARY TABLE alone_temporary (id int)",
        "PREPARE alone_prepared AS SELECT 1",
        "DO $$ BEGIN PERFORM set_config('app.tenant', '{tenant}', false); END $$",
    ),
    "mysql": (
        "SET @tenant = '{tenant}'",
        "SELECT @tenant := '{tenant}'",
        "SELECT '{tenant}' INTO @tenant",
        "USE {there}",
        "SET time_zone = '+09:00'",
        "SET SESSION sql_mode = ''",
        "SET NAMES latin1",
        "CREATE TEMPORARY TABLE alone_temporary (id int)",
        "SET TRANSACTION READ ONLY",
    ),
    "sqlite": (
        "PRAGMA case_sensitive_like = ON",
        "CREATE TEMPORARY TABLE alone_temporary (id int)",
        "CREATE TEMP VIEW alone_seen AS SELECT 1",
    ),
}
_HIDDEN = {
    "postgresql": (
        "UPDATE alone_accounts SET points = points; COMMIT",
        "SELECT 1; COMMIT; BEGIN",
        "CALL alone_commits()",
        "DO $$ BEGIN COMMIT; END $$",
    ),
    "mysql": (
        "CALL alone_commits()",
        "CALL alone_defines()",
        "EXECUTE IMMEDIATE 'COMMIT'",
        "SET autocommit = 1",
        "SET @@session.autocommit = 1",
        "/*!50000 COMMIT */",
        "BEGIN NOT ATOMIC COMMIT; END",
    ),
    "sqlite": (),
}


def setting(number: int) -> Step:
    """Return the step that sets something in the way of this number."""

    def sets(do: Doing) -> None:
        ways = _SETTING[kind_of(do.session)]
        there = f"{do.session.connection().engine.url.database}_{ELSEWHERE}"
        do.session.execute(
            text(ways[number % len(ways)].format(tenant=do.message, there=there).replace(":=", r"\:="))
        )

    return sets


def become_guest(do: Doing) -> None:
    """Become someone who may write lines, and knows nothing of the ledger."""
    if kind_of(do.session) == "postgresql":
        role = do.session.scalar(text("SELECT name FROM alone_role"))
        do.session.execute(text(f"SET ROLE {role}"))
        do.write("as a guest")


def become(do: Doing) -> None:
    """Set the same through a function, whose call shows nothing of it."""
    if kind_of(do.session) != "sqlite":
        do.session.execute(text("SELECT alone_become(:who)"), {"who": do.message})


def tenant(do: Doing) -> None:
    """Say who the connection takes us for."""
    do.write(f"tenant {do.session.scalar(text(_TENANT[kind_of(do.session)]))}")


def place(do: Doing) -> None:
    """Say where the connection is, and write there what has no schema."""
    found = do.session.scalar(text(_PLACE[kind_of(do.session)]))
    do.session.execute(
        text("INSERT INTO alone_lines (message, what) VALUES (:message, :what)"),
        {"message": do.message, "what": f"place {found}"},
    )


def _driver(do: Doing) -> Any:
    return do.session.connection().connection.driver_connection


def translated(do: Doing) -> None:
    """Have the connection put tables elsewhere, by an option that SQLAlchemy keeps on it."""
    there = f"{do.session.connection().engine.url.database}_{ELSEWHERE}"
    schema = {"postgresql": ELSEWHERE, "mysql": there, "sqlite": "main"}[kind_of(do.session)]
    do.session.connection().execution_options(schema_translate_map={None: schema})
    do.write("translated")


def reflected(do: Doing) -> None:
    """Look at a table: on MySQL this turns off the events of errors on its connection."""
    columns = inspect(do.session.connection()).get_columns("alone_lines")
    do.write(f"columns {len(columns)}")


def raw(do: Doing) -> None:
    """Write through a cursor of the driver."""
    mark = "?" if kind_of(do.session) == "sqlite" else "%s"
    cursor = _driver(do).cursor()
    statement = f"UPDATE alone_accounts SET points = points % 1000 + {{}} WHERE name = {mark}"
    if mark == "%s":
        statement = statement.replace("% 1000", "%% 1000")
    cursor.execute(statement.format(len(do.message)), (do.name,))
    cursor.close()


def copied(do: Doing) -> None:
    """Write many rows in the driver's own way."""
    rows, cursor = [(do.message, f"copied {at}") for at in range(2)], _driver(do).cursor()
    if kind_of(do.session) == "postgresql":
        with cursor.copy("COPY alone_lines (message, what) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    else:
        mark = "?" if kind_of(do.session) == "sqlite" else "%s"
        cursor.executemany(f"INSERT INTO alone_lines (message, what) VALUES ({mark}, {mark})", rows)
    cursor.close()


def hidden(number: int) -> Step:
    """Return the step that ends the transaction in the way of this number; the driver's own are the first ones."""

    def ends(do: Doing) -> None:
        ways = _HIDDEN[kind_of(do.session)]
        chosen = number % (len(ways) + 2)
        if chosen >= 2:
            do.session.execute(text(ways[chosen - 2]))
        elif chosen == 1 and kind_of(do.session) == "sqlite":
            _driver(do).executescript("UPDATE alone_accounts SET points = points; COMMIT")
        elif chosen == 1:
            _driver(do).rollback()
        else:
            _driver(do).commit()

    return ends


SETTINGS: Mapping[str, Step] = {
    **{f"set{number}": setting(number) for number in range(14)},
    "become": become,
    "guest": become_guest,
    "translated": translated,
    "reflected": reflected,
    "raw": raw,
    "copied": copied,
}
"""What would be noticed by neighbours."""

NOTICING: Mapping[str, Step] = {"tenant": tenant, "place": place}
"""What would notice a neighbour."""

HIDDEN: Mapping[str, Step] = {f"hidden{number}": hidden(number) for number in range(9)}
"""What saves, or throws away, more than the handler's own work."""
