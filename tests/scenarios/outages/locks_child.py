"""A process that does fenced work under a lock for as long as it lives; tests stop, pause and kill it.

Arguments: URL of Redis, name of the lock, URL of the database, milliseconds of lease. Each round it reads the row's
counter under the lock, dawdles, and writes it back with its token; a refused write is counted, never repeated.
The database ends a transaction that is blocked: a process stopped in the middle of one would hold its row for ever.
"""

import os
import sys
import time
from datetime import timedelta

from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from oncemq.errors import OnceMQError
from oncemq_strategies.redisson import FencedLock, lock

FENCED = text("UPDATE guarded SET n = :n, token = :token, writer = :writer WHERE id = 1 AND token <= :token")
NOTE = text("INSERT INTO writes (token, writer, n) VALUES (:token, :writer, :n)")


def main() -> None:
    """Work until killed."""
    redis, name, database, lease = sys.argv[1:5]
    lock.LEASE = timedelta(milliseconds=int(lease))
    engine = create_engine(database, connect_args={"options": "-c idle_in_transaction_session_timeout=2000"})
    writer = os.getpid()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        guard = FencedLock(redis, name)
        try:
            with guard:
                work(engine, guard, writer)
        except (OnceMQError, DBAPIError):
            time.sleep(0.05)
        finally:
            guard._client.close()


def work(engine, guard, writer: int) -> None:
    """Count up ten times in one hold."""
    token = guard.token
    for _ in range(10):
        with engine.begin() as connection:
            n = connection.execute(text("SELECT n FROM guarded WHERE id = 1")).scalar_one()
            time.sleep(0.005)
            if connection.execute(FENCED, {"n": n + 1, "token": token, "writer": writer}).rowcount == 1:
                connection.execute(NOTE, {"token": token, "writer": writer, "n": n + 1})


if __name__ == "__main__":
    main()
