"""Steps of random programs that a handler's session or its connection carries out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from alone.world import Account, Entry, Line, Order, Versioned
from oncemq import Publisher, Reject, Retry


@dataclass(slots=True)
class Doing:
    """What one step works with.

    Args:
        session: the handler's.
        publisher: the handler's.
        message: the message's id.
        name: of an account; few, so that neighbours meet.
        key: the message's key, an order of its own.
    """

    session: Session
    publisher: Publisher
    message: str
    name: str
    key: str

    def note(self, what: str) -> None:
        """Leave a line, merely added."""
        self.session.add(Line(message=self.message, what=what[:80]))

    def write(self, what: str) -> None:
        """Leave a line, sent at once."""
        self.session.execute(insert(Line).values(message=self.message, what=what[:80]))


Step = Callable[[Doing], object]


def change(do: Doing) -> None:
    """Read an object and change it, or add it."""
    account = do.session.get(Account, do.name)
    if account is not None:
        account.points = account.points % 1000 * 2 + 1
    else:
        do.session.add(Account(name=do.name, points=len(do.message)))


def remove(do: Doing) -> None:
    """Delete an object with all that belongs to it."""
    account = do.session.get(Account, do.name)
    if account is not None:
        do.session.delete(account)


def locked(do: Doing) -> None:
    """Lock a row and say what it holds."""
    account = do.session.get(Account, do.name, with_for_update=True)
    do.note(f"locked {account.points if account else None}")


def overwrite_locked(do: Doing) -> None:
    """Lock a row through a query, and change it by what it holds."""
    query = select(Account).where(Account.name == do.name).with_for_update()
    account = do.session.scalars(query).one_or_none()
    if account is not None:
        account.points = account.points % 1000 + 3


def append(do: Doing) -> None:
    """Add to a collection, which is loaded for it."""
    account = do.session.get(Account, do.name)
    if account is not None:
        account.entries.append(Entry(message=do.message))


def cycle(do: Doing) -> None:
    """Add an object by its other side, and read it back from there."""
    account = do.session.get(Account, do.name) or Account(name=do.name, points=2)
    do.session.add(Entry(message=do.message, account=account))
    do.note(f"entries {len(account.entries)}")


def tree(do: Doing) -> None:
    """Add an object with what belongs to it, without reading."""
    do.session.add(Account(name=f"t{do.message}", points=1, entries=[Entry(message=do.message)]))


def counted(do: Doing) -> None:
    """Say what all rows hold; the query flushes first."""
    found = do.session.scalars(select(Account).order_by(Account.name)).all()
    do.note(f"{len(found)} of {sum(account.points for account in found)}")


def read_back(do: Doing) -> None:
    """Say which lines are there, as the database has them."""
    found = do.session.execute(text("SELECT count(*), max(message) FROM alone_lines")).one()
    do.write(f"back {found[0]} {found[1]}")


def caught(do: Doing) -> None:
    """Insert, on IntegrityError update: the usual way on MariaDB."""
    try:
        do.session.execute(insert(Account).values(name=do.name, points=5))
    except IntegrityError:
        do.session.execute(update(Account).where(Account.name == do.name).values(points=Account.points + 5))


def savepoint(do: Doing) -> None:
    """The same in a savepoint, as it must be on PostgreSQL."""
    try:
        with do.session.begin_nested():
            do.session.execute(update(Account).where(Account.name == do.name).values(points=-1000))
            do.session.execute(insert(Account).values(name="taken"))
    except IntegrityError:
        do.session.execute(update(Account).where(Account.name == do.name).values(points=Account.points + 7))


def nested(do: Doing) -> None:
    """Add in a savepoint that is kept."""
    with do.session.begin_nested():
        do.note("nested")


def nested_object(do: Doing) -> None:
    """Add in a savepoint what may be there already."""
    try:
        with do.session.begin_nested():
            do.session.add(Account(name=do.name, points=3))
    except IntegrityError:
        do.note("there already")


def versioned(do: Doing) -> None:
    """Change a row that counts its versions."""
    row = do.session.get(Versioned, do.name)
    if row is not None:
        row.points = row.points % 1000 + 1


def bulk_update(do: Doing) -> None:
    """Change a row by its primary key, without an object."""
    do.session.bulk_update_mappings(Versioned.__mapper__, [{"name": "n0", "version": 1, "points": 9}])


def streamed(do: Doing) -> None:
    """Read through a cursor of the server, if there is one."""
    query = select(Line.message).order_by(Line.id).execution_options(yield_per=2)
    do.note(f"streamed {len(do.session.scalars(query).all())}")


def subquery(do: Doing) -> None:
    """Add what the database computes from neighbours' rows."""
    count = select(text("count(*)")).select_from(Account).scalar_subquery()
    do.session.add(Account(name=f"q{do.message}", points=count))


def own(do: Doing) -> None:
    """Say what the message's own row holds."""
    row = do.session.execute(select(Order.state, Order.version).where(Order.id == do.key)).one_or_none()
    do.write(f"own {tuple(row) if row else None}")


def lost_update(do: Doing) -> None:
    """Raise what a swallowed error of the database leaves behind."""
    try:
        do.session.execute(insert(Account).values(name="taken"))
    except IntegrityError:
        do.note("swallowed")


def swallowed_flush(do: Doing) -> None:
    """Go on after a flush that failed."""
    do.session.add(Account(name="taken", points=1))
    try:
        do.session.flush()
    except IntegrityError:
        do.note("flush swallowed")


def shown(do: Doing) -> None:
    """Say what the session holds."""
    session = do.session
    # Not its identity map: how long objects live that nothing refers to is the collector's affair.
    do.note(f"seen {len(session.new)} {len(session.dirty)} {len(session.deleted)}")


def merged(do: Doing) -> None:
    """Bring an object of an older time into the session."""
    do.session.merge(Account(name=do.name, points=4))


def refreshed(do: Doing) -> None:
    """Read an object again after Core has changed its row."""
    account = do.session.get(Account, do.name)
    if account is not None:
        do.session.connection().execute(text("UPDATE alone_accounts SET points = points % 1000 + 2"))
        do.session.refresh(account)
        do.note(f"refreshed {account.points}")


def fetched(do: Doing) -> None:
    """Change rows by a query, and have objects follow it."""
    account = do.session.get(Account, do.name)
    query = update(Account).where(Account.name == do.name).values(points=Account.points % 1000 + 4)
    do.session.execute(query, execution_options={"synchronize_session": "fetch"})
    do.note(f"fetched {account.points if account else None}")


STEPS: Mapping[str, Step] = {
    "line": lambda do: do.note("line"),
    "lines": lambda do: do.session.add_all([Line(message=do.message, what=f"line {at}") for at in range(3)]),
    "entry": lambda do: do.session.add(Entry(name=do.name, message=do.message)),
    "change": change,
    "remove": remove,
    "locked": locked,
    "overwrite_locked": overwrite_locked,
    "append": append,
    "cycle": cycle,
    "tree": tree,
    "counted": counted,
    "read_back": read_back,
    "savepoint": savepoint,
    "nested": nested,
    "nested_object": nested_object,
    "versioned": versioned,
    "streamed": streamed,
    "subquery": subquery,
    "own": own,
    "shown": shown,
    "merged": merged,
    "refreshed": refreshed,
    "fetched": fetched,
    "flush": lambda do: do.session.flush(),
    "commit": lambda do: do.session.commit(),
    "core": lambda do: do.session.execute(
        update(Account).where(Account.name == do.name).values(points=Account.points % 1000 * 3 + 1)
    ),
    "connection": lambda do: do.session.connection().execute(
        update(Account).where(Account.name == do.name).values(points=Account.points % 1000 * 5 + 2)
    ),
    "text": lambda do: do.session.execute(
        text("UPDATE alone_accounts SET points = points % 1000 * 2 WHERE name = :name"), {"name": do.name}
    ),
    "plain_text": lambda do: do.session.connection().exec_driver_sql(
        "UPDATE alone_lines SET what = 'changed' WHERE what = 'line'"
    ),
    "erase": lambda do: do.session.execute(delete(Account).where(Account.name == do.name)),
    "bulk": lambda do: do.session.bulk_insert_mappings(
        Line.__mapper__,
        [{"message": do.message, "what": "bulk 1"}, {"message": do.message, "what": "bulk 2"}],
    ),
    "bulk_save": lambda do: do.session.bulk_save_objects([Line(message=do.message, what="saved")]),
    "bulk_core": lambda do: do.session.execute(
        insert(Line), [{"message": do.message, "what": f"rows {at}"} for at in range(2)]
    ),
    "publish": lambda do: do.publisher.publish("events", {"id": do.message, "key": do.key}),
    "cancel": lambda do: do.session.execute(
        update(Order).where(Order.id == f"o{do.name[1]}").values(state="cancelled")
    ),
    "forward": lambda do: do.session.execute(
        update(Order).where(Order.id == f"o{do.name[1]}").values(version=3)
    ),
}
"""What handlers do every day; they fail only by what is in the tables."""


def _rejects(do: Doing) -> None:
    raise Reject(f"no {do.message}")


def _retries(do: Doing) -> None:
    raise Retry(f"later {do.message}", after=timedelta(seconds=1))


def _fails(do: Doing) -> None:
    raise ValueError(do.message)


FAILURES: Mapping[str, Step] = {
    "reject": _rejects,
    "retry": _retries,
    "fail": _fails,
    "new": lambda do: do.session.add(Account(name="taken", points=1)),
    "taken": lambda do: do.session.execute(insert(Account).values(name="taken", points=1)),
    "too_long": lambda do: do.session.add(Line(message="m" * 30, what="long")),
    "null": lambda do: do.session.add(Line(message=None, what="null")),
    "no_table": lambda do: do.session.execute(text("SELECT 1 FROM nowhere_at_all")),
    "orphan": lambda do: do.session.add(Entry(name="stranger", message=do.message)),
    "caught": caught,
    "lost_update": lost_update,
    "swallowed_flush": swallowed_flush,
    "rollback": lambda do: do.session.rollback(),
    "close": lambda do: do.session.close(),
    "open_savepoint": lambda do: do.session.begin_nested(),
    "ends": lambda do: do.session.execute(text("COMMIT")),
}
"""What makes most messages fail, before, between or behind their other steps."""
