"""Rows of the scratch database: the user's tables as far as strategies use them, and what was there before the recording."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Engine, MetaData, String, Table, insert

from oncemq.config.build.shared_parts import written
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.ledger.records import processed, sequences, states
from oncemq.message.envelope import Message
from oncemq.message.expressions import compile_expression
from oncemq.rehearsal.meaning import RecordedReader, message_of
from oncemq.rehearsal.protection import Protection
from oncemq.rehearsal.stories import End, Story, known_before

_TEXT: Final = 255
_ROWS: Final = 2_000
"""Rows in one statement."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a message asks of a strategy that compares places: a state, a version, a number.

    Args:
        strategy: its name.
        options: as declared.
        value: the expression; empty = the topic's version.
    """

    strategy: str
    options: Mapping[str, Any]
    value: str

    @property
    def entity(self) -> Mapping[str, Any]:
        """The user's table and columns; empty if the ledger has them."""
        found = self.options.get("entity")
        return found if isinstance(found, Mapping) else {}

    @property
    def column(self) -> str:
        """The column of the user's table."""
        return str(self.entity["state" if self.strategy == "state_machine" else "version"])

    @property
    def where(self) -> str:
        """The name of the expression, for errors."""
        return f"{self.strategy} {_EXPRESSIONS[self.strategy]}"


_EXPRESSIONS: Final = {"state_machine": "to", "optimistic_lock": "version", "sequence": "order"}


def wishes_of(settled: ConsumerSettings) -> list[Wish]:
    """Return what messages ask of each strategy that compares places."""
    found = []
    for choice in settled.strategies:
        if choice.name in _EXPRESSIONS:
            options = written(choice.options)
            found.append(Wish(choice.name, options, str(options.get(_EXPRESSIONS[choice.name], ""))))
    return found


def expressions_of(settled: ConsumerSettings) -> dict[str, str]:
    """Return the expressions that the strategies read, by what they are for."""
    found = {wish.where: wish.value for wish in wishes_of(settled) if wish.value}
    for choice in settled.strategies:
        prints = written(choice.options).get("fingerprint") or ()
        for text in [prints] if isinstance(prints, str) else prints:
            found[f"{choice.name} fingerprint {text}"] = str(text)
    return found


def create_tables(settled: ConsumerSettings) -> Callable[[Engine], None]:
    """Return a function that creates the user's tables that strategies read, with nothing but the columns that they read."""
    columns: dict[tuple[str, str], dict[str, Any]] = {}
    for wish in wishes_of(settled):
        if wish.entity:
            place = (str(wish.entity["table"]), str(wish.entity["key"]))
            columns.setdefault(place, {})[wish.column] = _type_of(wish)

    def create(engine: Engine) -> None:
        metadata = MetaData()
        for (name, key), more in columns.items():
            Table(
                name,
                metadata,
                Column(key, String(_TEXT), primary_key=True),
                *(Column(column, kind) for column, kind in more.items()),
            )
        metadata.create_all(engine)

    return create


def _type_of(wish: Wish) -> Any:
    return String(_TEXT) if wish.strategy == "state_machine" else BigInteger()


@dataclass
class Seeds:
    """What was there before the recording began, as far as it tells.

    Attributes:
        identities: (identity, key) of messages that had been applied, and whose records still count.
        places: by strategy: the state, version or number that each key had.
        words: what was assumed.
    """

    identities: list[tuple[str, str]] = field(default_factory=list)
    places: dict[int, dict[str, Any]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)


def seeds_of(
    settled: ConsumerSettings, stories: Sequence[Story], reader: RecordedReader, protection: Protection
) -> Seeds:
    """Return what the scratch database begins with."""
    found = Seeds()
    if protection.identities:
        for number, story in _readable(known_before(stories), stories):
            envelope = _envelope(reader, number, story, settled.topic)
            if envelope is not None:
                found.identities.append((envelope.identity, envelope.key))
        found.identities = list(dict(found.identities).items())
        if found.identities:
            found.words.append(
                f"{len(found.identities)} messages had been applied before the recording began: their records still count"
            )
    for index, wish in enumerate(wishes_of(settled)):
        if not wish.entity and wish.strategy not in protection.stores:
            continue
        places = found.places[index] = _places(settled, stories, reader, wish)
        known = sum(value is not None for value in places.values())
        where = f"your table {wish.entity['table']}" if wish.entity else "the ledger"
        if known:
            found.words.append(
                f"{where} had {known} keys before the recording began, each just before its first message here"
            )
    return found


def _readable(some: Sequence[Story], stories: Sequence[Story]) -> Iterator[tuple[int, Story]]:
    numbers = {id(story): number for number, story in enumerate(stories)}
    return ((numbers[id(story)], story) for story in some if story.readable)


def _envelope(reader: RecordedReader, number: int, story: Story, topic: str) -> Any:
    try:
        return reader.read(message_of(number, story, topic))[0]
    except Exception:  # the rehearsal says why
        return None


def _places(
    settled: ConsumerSettings, stories: Sequence[Story], reader: RecordedReader, wish: Wish
) -> dict[str, Any]:
    """Return the place of each key before its first message here that was applied, or was a duplicate."""
    expression = compile_expression(wish.value) if wish.value else None
    before = _before(wish)
    found: dict[str, Any] = {}
    certain: set[str] = set()
    # In the order in which they ended: one that waited for another came before it.
    for number in sorted(range(len(stories)), key=lambda number: stories[number].latest):
        story = stories[number]
        if not story.readable or (reader.keeps_keys and story.first.key in certain):
            continue
        message: Message = message_of(number, story, settled.topic)
        try:
            envelope, body = reader.read(message)
            value = envelope.version if expression is None else expression(message, body)
            if envelope.key in certain:
                continue
            found.setdefault(envelope.key, None)
            if story.end is End.APPLIED:
                found[envelope.key] = before(value)
            elif story.end is End.DUPLICATE:
                found[envelope.key] = value if isinstance(value, int | str) else None
            else:
                continue
            certain.add(envelope.key)
        except Exception:  # noqa: S112 - the rehearsal says why
            continue
    return found


def _before(wish: Wish) -> Callable[[Any], Any]:
    """Return a function: the place just before one."""
    if wish.strategy != "state_machine":
        step = 0 if wish.options.get("message_version") == "current" else 1
        first = wish.options.get("first", 1)
        least = first if isinstance(first, int) else 1
        return lambda value: int(value) - step if int(value) - step >= least else None
    listed = wish.options.get("states")
    if isinstance(listed, list):
        earlier = dict(zip(listed[1:], listed, strict=False))
        return earlier.get
    followers = wish.options.get("transitions") or {}
    earlier = {}
    for state, targets in followers.items():
        for target in [targets] if isinstance(targets, str) else targets or ():
            earlier.setdefault(target, state)
    return earlier.get


def store(engine: Engine, settled: ConsumerSettings, scope: str, seeds: Seeds, now: datetime) -> None:
    """Write what was there before into the scratch database."""
    with engine.begin() as connection:

        def add(table: Table, rows: list[dict[str, Any]]) -> None:
            for start in range(0, len(rows), _ROWS):
                connection.execute(insert(table), rows[start : start + _ROWS])

        add(
            processed.TABLE,
            [
                {"consumer": scope, "identity": identity, "key": key, "processed_at": now}
                for identity, key in seeds.identities
            ],
        )
        rows: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        for index, wish in enumerate(wishes_of(settled)):
            places = seeds.places.get(index, {})
            if wish.entity:
                by_key = rows.setdefault((str(wish.entity["table"]), str(wish.entity["key"])), {})
                for key, value in places.items():
                    by_key.setdefault(key, {})[wish.column] = value
            elif wish.strategy == "state_machine":
                add(
                    states.TABLE,
                    [
                        {"consumer": scope, "key": key, "state": value, "changed_at": now}
                        for key, value in places.items()
                        if value is not None
                    ],
                )
            else:
                add(
                    sequences.TABLE,
                    [
                        {"consumer": scope, "key": key, "last": str(value), "moved_at": now}
                        for key, value in places.items()
                        if value is not None
                    ],
                )
        for (name, key_column), by_key in rows.items():
            columns = dict.fromkeys(column for values in by_key.values() for column in values)
            table = Table(name, MetaData(), autoload_with=connection)
            add(
                table,
                [{key_column: key, **dict.fromkeys(columns), **values} for key, values in by_key.items()],
            )
