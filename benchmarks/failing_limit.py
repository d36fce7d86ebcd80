"""What failing after writing costs at least: `python -m benchmarks.failing_limit` prints it as a share of the healthy rate.

SQLAlchemy alone, written by hand and knowing beforehand who will fail: a savepoint for these only, one statement for a unit's
dedup rows, no broker, no dead letters.
"""

from statistics import median
from time import perf_counter

from sqlalchemy import delete, insert
from sqlalchemy.orm import Session

from benchmarks.stage.servers import Servers, servers
from benchmarks.stage.tables import Points, Processed

MESSAGES, UNIT, ROUNDS = 12_000, 400, 3
SHARES = (0.0, 0.01, 0.1)


def main() -> None:
    """Measure in rounds and print the medians."""
    with servers() as where:
        _run(where, 0.0)
        rates = {share: median(_run(where, share) for _ in range(ROUNDS)) for share in SHARES}
    for share, rate in rates.items():
        print(f"{share:4.0%} fail after writing: {rate:8,.0f}/s, {rate / rates[0.0]:.2f} of none")


def _run(where: Servers, share: float) -> float:
    where.empty()
    every = round(1 / share) if share else 0
    started = perf_counter()
    for first in range(0, MESSAGES, UNIT):
        with Session(where.engine) as session, session.begin():
            _unit(session, range(first, first + UNIT), every)
    return MESSAGES / (perf_counter() - started)


def _unit(session: Session, numbers: range, every: int) -> None:
    session.connection().execute(insert(Processed), [{"order_id": str(number)} for number in numbers])
    failed = []
    for number in numbers:
        points = Points(order_id=str(number), user_id="u", points=30)
        if not every or number % every:
            session.add(points)
            continue
        savepoint = session.begin_nested()
        session.add(points)
        session.flush()
        savepoint.rollback()
        failed.append(str(number))
    session.flush()
    if failed:
        session.connection().execute(delete(Processed).where(Processed.order_id.in_(failed)))


if __name__ == "__main__":
    main()
