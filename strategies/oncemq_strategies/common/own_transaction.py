"""Runs a strategy's own transactions, outside any unit's: retried after deadlocks and lock time-outs."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from oncemq.retry.classify import Fault, classify

Result = TypeVar("Result")

TRIES = 5


def in_transaction(engine: Engine, work: Callable[[Connection], Result], *, tries: int = TRIES) -> Result:
    """Run `work` in a transaction; it is repeated after a deadlock or lock time-out, so it must be repeatable.

    Args:
        engine: the database.
        work: the statements.
        tries: how often at most.

    Raises:
        sqlalchemy.exc.DBAPIError: the error persists, or is not transient.
    """
    retrying = Retrying(
        retry=retry_if_exception(lambda error: classify(error) is Fault.TRANSIENT),
        stop=stop_after_attempt(tries),
        wait=wait_random_exponential(multiplier=0.01, max=0.5),
        reraise=True,
    )
    result: Result = retrying(_once, engine, work)
    return result


def _once(engine: Engine, work: Callable[[Connection], Result]) -> Result:
    with engine.begin() as connection:
        return work(connection)
