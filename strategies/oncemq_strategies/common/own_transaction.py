"""Transactions of a strategy's own, outside any unit's: tried again while rivals are in the way."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from oncemq.retry.classify import Fault, classify

Result = TypeVar("Result")

TRIES = 5


def in_transaction(engine: Engine, work: Callable[[Connection], Result], *, tries: int = TRIES) -> Result:
    """Do `work` in a transaction; a deadlock or lock time-out lets it be done again, so it must bear that.

    Args:
        engine: the database.
        work: what to do.
        tries: how often at most.

    Raises:
        sqlalchemy.exc.DBAPIError: it lasts, or is no such moment's trouble.
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
