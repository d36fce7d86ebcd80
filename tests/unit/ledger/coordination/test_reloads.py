"""Requests to reload, and the processes that answer them."""

from datetime import timedelta

from sqlalchemy import Engine, func, select, update

from oncemq.ledger.coordination import reloads
from oncemq.ledger.coordination.reloads import REQUESTS, SUPERVISORS
from oncemq.ledger.database.server_clock import server_time


def test_the_latest_request_of_an_app_is_seen_with_who_and_why(engine: Engine) -> None:
    """Numbers grow; requests of other apps are not seen, and old ones go."""
    with engine.begin() as connection:
        assert reloads.latest(connection, "shop") is None
        numbers = [reloads.ask(connection, "shop", f"alice{n}", "prices") for n in range(105)]
        reloads.ask(connection, "other", "bob", "")
        found = reloads.latest(connection, "shop")
        left = connection.scalar(select(func.count()).where(REQUESTS.c.app == "shop"))
    assert numbers == sorted(set(numbers))
    assert found is not None
    assert (found.number, found.who, found.why) == (numbers[-1], "alice104", "prices")
    assert left == 100


def test_processes_sign_on_and_off_and_are_silent_after_a_minute(engine: Engine) -> None:
    """One that was removed meanwhile is told; one that was not seen for an hour is forgotten at the next sign-on."""
    with engine.begin() as connection:
        for name in ("a-1", "b-1", "c-1"):
            reloads.sign_on(connection, "shop", name, name[0], 1, "v1")
        assert reloads.seen(connection, "shop", "b-1", "v2")
        assert not reloads.seen(connection, "shop", "d-1", "v2")
        reloads.sign_off(connection, "shop", "a-1")
        found = reloads.supervisors(connection, "shop")
        assert [(each.process, each.version, each.silent) for each in found] == [
            ("b-1", "v2", False),
            ("c-1", "v1", False),
        ]
        for name, ago in (("b-1", timedelta(minutes=2)), ("c-1", timedelta(hours=2))):
            then = server_time(connection) - ago
            connection.execute(update(SUPERVISORS).where(SUPERVISORS.c.process == name).values(seen_at=then))
        assert all(each.silent for each in reloads.supervisors(connection, "shop"))
        reloads.sign_on(connection, "shop", "e-1", "e", 1, "v1")
        left = [(each.process, each.silent) for each in reloads.supervisors(connection, "shop")]
    assert left == [("b-1", True), ("e-1", False)]
