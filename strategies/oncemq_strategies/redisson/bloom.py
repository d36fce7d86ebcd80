"""Bloom filter shared by Python and Java services on Redisson (`RBloomFilter`)."""

from collections.abc import Sequence
from typing import Any

from oncemq.errors import OnceMQError, RedisUnavailable
from oncemq.redis.call import Script
from oncemq.redis.client import RedisClient
from oncemq.redis.connect import client_of
from oncemq_strategies.redisson.bloom_scripts import ADD, CONTAINS, MAKE
from oncemq_strategies.redisson.bloom_shape import Shape
from oncemq_strategies.redisson.names import check_filter_name, settings_of

_TRIES = 3


class NoSuchFilter(OnceMQError):
    """This Bloom filter has not been created yet, or was deleted."""


class BloomFilter:
    """Redisson's `client.getBloomFilter(name, StringCodec.INSTANCE)`: may say "maybe" too often, never too seldom.

    Each method is one round trip, however many values it is given. Text counts as its UTF-8 bytes, as with Redisson's
    `StringCodec`; bytes count as they are, as with its `ByteArrayCodec`. Values that Java adds with another codec, such
    as Redisson's default, are other bytes and are not found here.

    A filter forgets when Redis does: "no" means "no, or forgotten", "maybe" means "maybe". Neither proves anything
    about the contents of a database.

    Args:
        client: a URL, a client of redis-py or redis-py-cluster, or a `RedisClient`.
        name: Redisson's name of the filter.
    """

    def __init__(self, client: Any, name: str) -> None:
        self._source = client
        client_of(client)  # refuses an invalid client at once
        self.name = name
        self._shape: Shape | None = None
        self._checked = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def try_init(self, expected: int, false_positives: float) -> bool:
        """Create the filter unless it exists; returns whether it was created.

        Args:
            expected: number of values that it is made for.
            false_positives: the share of other values reported as added when it holds so many.

        Raises:
            ValueError: no such filter is possible.
            BadFilterName: no filter can have this name.
            RedisUnavailable: Redis does not answer.
        """
        shape = Shape.made_for(expected, false_positives)
        return bool(self._client.run(MAKE, self._keys(), shape.fields()) == 1)

    def add(self, value: str | bytes) -> bool:
        """Add one value; returns False if it may have been added before.

        Raises:
            NoSuchFilter: it must be created first, by `try_init` here or in Java.
            RedisUnavailable: Redis does not answer.
        """
        return self.add_all([value])[0]

    def add_all(self, values: Sequence[str | bytes]) -> list[bool]:
        """Add values; returns for each whether it was new. Raises as `add`."""
        return self._each(ADD, values)

    def contains(self, value: str | bytes) -> bool:
        """Return whether a value may have been added. Raises as `add`."""
        return self.contains_all([value])[0]

    def contains_all(self, values: Sequence[str | bytes]) -> list[bool]:
        """Return for each value whether it may have been added. Raises as `add`."""
        return self._each(CONTAINS, values)

    def count(self) -> int:
        """Return the approximate number of added values. Raises as `add`."""
        shape = self.shape()
        ones = self._client.command("BITCOUNT", self.name, key=self.name)
        return round(min(shape.added(ones / shape.size), shape.size))

    def shape(self) -> Shape:
        """Return the parameters that the filter was created with. Raises as `add`."""
        words = ("HMGET", "size", "hashIterations", "expectedInsertions", "falseProbability")
        settings = self._keys()[1]
        return self._made(self._client.command(words[0], settings, *words[1:], key=settings))

    def delete(self) -> bool:
        """Delete the filter; returns whether it existed.

        Raises:
            RedisUnavailable: Redis does not answer.
        """
        self._shape = None
        return bool(self._client.command("DEL", *self._keys(), key=self.name))

    @property
    def _client(self) -> RedisClient:
        return client_of(self._source)

    def _keys(self) -> list[str]:
        if not self._checked:
            check_filter_name(self.name, clustered=self._client.clustered)
            self._checked = True
        return [self.name, settings_of(self.name)]

    def _each(self, script: Script, values: Sequence[str | bytes]) -> list[bool]:
        if not values:
            return []
        keys = self._keys()
        for _ in range(_TRIES):
            shape = self._shape = self._shape or self.shape()
            places = [place for value in values for place in shape.bits(value)]
            fits, *answers = self._client.run(script, keys, [shape.size, shape.iterations, *places])
            if fits:
                return [answer == 1 for answer in answers]
            self._shape = None  # also when the filter was deleted
            self._shape = self._made(answers)
        raise RedisUnavailable(f"the Bloom filter {self.name!r} is made again all the time")

    def _made(self, fields: Sequence[Any]) -> Shape:
        if not fields[0] or not fields[1]:
            raise NoSuchFilter(
                f"there is no Bloom filter {self.name!r}: make it first, by try_init(expected, false_positives)"
            )
        return Shape.read([field or "" for field in fields])
