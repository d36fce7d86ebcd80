"""Makes random handler programs, which leave the same behind one message a transaction and many (rule 20)."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Engine, String, delete, insert, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncemq.errors import Reject
from oncemq_strategies.unique_key import UniqueKey
from support.units import UnitBench


class Base(DeclarativeBase):
    """The tables of these programs."""


class Account(Base):
    """Rows that programs change; few, so that neighbours meet."""

    __tablename__ = "alone_accounts"
    name: Mapped[str] = mapped_column(String(20), primary_key=True)
    points: Mapped[int] = mapped_column(default=0)


class Line(Base):
    """What happened, in order."""

    __tablename__ = "alone_lines"
    id: Mapped[int] = mapped_column(primary_key=True)
    message: Mapped[str] = mapped_column(String(20))
    what: Mapped[str] = mapped_column(String(60))


Step = Callable[[Session, str, str], None]
"""One step of a program: the session, the message's id and the account's name."""

_TENANT = {
    "postgresql": "SELECT coalesce(current_setting('app.tenant', true), '')",
    "mysql": "SELECT coalesce(@tenant, '')",
    "sqlite": "SELECT ''",
}
_SET_TENANT = {
    "postgresql": "SELECT set_config('app.tenant', :tenant, false)",
    "mysql": "SET @tenant = :tenant",
    "sqlite": "SELECT :tenant",
}


def _kind(session: Session) -> str:
    name = session.bind.dialect.name if session.bind is not None else ""
    return "mysql" if name == "mariadb" else name


def _change(session: Session, message: str, name: str) -> None:
    account = session.get(Account, name)
    if account is not None:
        account.points = account.points * 2 + 1
    else:
        session.add(Account(name=name, points=len(message)))


def _delete(session: Session, _: str, name: str) -> None:
    account = session.get(Account, name)
    if account is not None:
        session.delete(account)


def _locked(session: Session, message: str, name: str) -> None:
    account = session.get(Account, name, with_for_update=True)
    session.add(Line(message=message, what=f"locked {account.points if account else None}"))


def _caught(session: Session, _: str, name: str) -> None:
    try:
        session.execute(insert(Account).values(name=name, points=5))
    except IntegrityError:
        session.execute(update(Account).where(Account.name == name).values(points=Account.points + 5))


def _savepoint(session: Session, _: str, name: str) -> None:
    try:
        with session.begin_nested():
            session.execute(update(Account).where(Account.name == name).values(points=-1000))
            session.execute(insert(Account).values(name="taken"))
    except IntegrityError:
        session.execute(update(Account).where(Account.name == name).values(points=Account.points + 7))


def _raw(session: Session, message: str, name: str) -> None:
    mark = "?" if _kind(session) == "sqlite" else "%s"
    cursor: Any = session.connection().connection.cursor()
    cursor.execute(
        f"UPDATE alone_accounts SET points = points + {len(message)} WHERE name = {mark}",
        (name,),
    )
    cursor.close()


def _reject(_: Session, message: str, __: str) -> None:
    raise Reject(message)


def _fail(_: Session, message: str, __: str) -> None:
    raise ValueError(message)


def _count(session: Session, message: str, _: str) -> None:
    found = session.scalars(select(Account).order_by(Account.name)).all()
    session.add(Line(message=message, what=f"{len(found)} of {sum(one.points for one in found)}"))


def _tenant(session: Session, message: str, _: str) -> None:
    tenant = session.scalar(text(_TENANT[_kind(session)]))
    session.execute(insert(Line).values(message=message, what=f"tenant {tenant}"))


STEPS: Mapping[str, Step] = {
    "line": lambda session, message, _: session.add(Line(message=message, what="line")),
    "new": lambda session, _, name: session.add(Account(name=name, points=1)),
    "change": _change,
    "delete": _delete,
    "locked": _locked,
    "count": _count,
    "seen": lambda session, message, _: session.add(
        Line(
            message=message, what=f"seen {len(session.identity_map)} {len(session.new)} {len(session.dirty)}"
        )
    ),
    "core": lambda session, _, name: session.execute(
        update(Account).where(Account.name == name).values(points=Account.points * 3 + 1)
    ),
    "connection": lambda session, _, name: session.connection().execute(
        update(Account).where(Account.name == name).values(points=Account.points * 5 + 2)
    ),
    "text": lambda session, _, name: session.execute(
        text("UPDATE alone_accounts SET points = points * 2 WHERE name = :name"), {"name": name}
    ),
    "erase": lambda session, _, name: session.execute(delete(Account).where(Account.name == name)),
    "bulk": lambda session, message, _: session.bulk_insert_mappings(
        Line.__mapper__, [{"message": message, "what": "bulk 1"}, {"message": message, "what": "bulk 2"}]
    ),
    "caught": _caught,
    "savepoint": _savepoint,
    "flush": lambda session, _, __: session.flush(),
    "raw": _raw,
    "set": lambda session, message, _: session.execute(
        text(_SET_TENANT[_kind(session)]), {"tenant": message}
    ),
    "tenant": _tenant,
    "reject": _reject,
    "fail": _fail,
}
_RARE = ("set", "raw", "reject", "fail", "new", "caught")


def program(seed: int) -> list[dict[str, Any]]:
    """Return the messages of one program."""
    chance = random.Random(seed)
    usual = [name for name in STEPS if name not in _RARE]
    count = chance.choice((2, 3, 5, 8, 13))
    plain = chance.random() < 0.5
    messages = []
    for number in range(count):
        steps = chance.choices(usual, k=chance.randint(1, 3))
        if not plain and chance.random() < 0.3:
            steps.insert(chance.randint(0, len(steps)), chance.choice(_RARE))
        names = [f"n{chance.randint(0, 3)}" for _ in steps]
        messages.append(
            {
                "id": f"m{seed}-{number}",
                "key": f"k{chance.randint(0, 5)}",
                "steps": [*zip(steps, names, strict=True)],
            }
        )
    return messages


def perform(order: dict[str, Any], session: Session) -> None:
    """Carry out a message's steps; the handler."""
    for step, name in order["steps"]:
        STEPS[step](session, order["id"], name)


def empty(engine: Engine) -> None:
    """Bring the tables to their first state."""
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(delete(Line))
        connection.execute(delete(Account))
        connection.execute(insert(Account), [{"name": name, "points": 1} for name in ("n0", "n1", "taken")])


def outcome_of(engine: Engine, messages: Sequence[Mapping[str, Any]], size: int) -> tuple[Any, Any, Any]:
    """Return outcomes, lines in order and accounts after the messages ran in units of `size`."""
    empty(engine)
    bench = UnitBench(engine, perform, UniqueKey)
    outcomes: dict[str, str] = {}
    held: set[str] = set()
    todo = list(messages)
    while todo:
        unit, todo = todo[:size], todo[size:]
        back = []
        for order, outcome in zip(unit, bench.run(*unit), strict=True):
            outcomes[order["id"]] = outcome
            if outcome == "retry":
                held.add(order["key"])
            elif outcome == "returned":
                back.append(order)
        # As a worker does: what was not started has its turn again, unless its key waits for a retry.
        todo = [order for order in [*back, *todo] if order["key"] not in held]
    with engine.connect() as connection:
        lines = connection.execute(select(Line.message, Line.what).order_by(Line.id)).all()
        accounts = connection.execute(select(Account.name, Account.points).order_by(Account.name)).all()
    went = [outcomes.get(order["id"], "returned") for order in messages]
    return went, [tuple(line) for line in lines], [tuple(account) for account in accounts]
