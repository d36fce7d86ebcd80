"""`BloomFilter`: what was added is always found; the real Redisson's view of it is in tests/interop."""

import pytest

from oncemq.errors import RedisUnavailable
from oncemq.redis.routes import slot_of
from oncemq_strategies.redisson import BadFilterName, BloomFilter, NoSuchFilter
from oncemq_strategies.redisson.bloom_shape import MOST_BITS, Shape
from oncemq_strategies.redisson.highway_hash import hash128
from oncemq_strategies.redisson.names import settings_of

WORDS = [f"order-{number}" for number in range(300)]
# Of the lengths that are treated differently: nothing, odd bytes, 16 and more, one packet, a packet and a rest.
HASHES = {
    0: (0xB7AAD9C226C6A36B, 0xB2D4E4A63557BCA6),
    1: (0x9ED9A456D136D003, 0x58AC9F49FAA4CB70),
    12: (0xFF64813A26F019E5, 0x32B0AE7327787316),
    16: (0x0A77902E253C74E8, 0x83EBCD2532667188),
    31: (0xC5703F35C679D59C, 0x8E47DB5EECE2E3C3),
    32: (0x523E720710AB7664, 0xB450E60A8C480D0E),
    33: (0x24E1C4736E1C9C1C, 0x297A0B17D873D74F),
}


@pytest.mark.parametrize(("size", "halves"), HASHES.items())
def test_the_hash_stays_what_redisson_reckons(size, halves):
    """The values were right when a real Redisson read what we had written."""
    assert hash128(bytes(range(size))) == halves


@pytest.mark.parametrize(
    ("expected", "share", "size", "iterations", "text"),
    [
        (1_000_000, 0.01, 9_585_058, 7, "0.01"),
        (500, 0.0001, 9_585, 13, "1.0E-4"),
        (20, 0.3, 50, 2, "0.3"),
        (7, 0.00125, 97, 10, "0.00125"),
        (7, 2.5e-7, 221, 22, "2.5E-7"),
    ],
)
def test_a_filter_has_redissons_size(expected, share, size, iterations, text):
    """And its share is written as Java writes it."""
    shape = Shape.made_for(expected, share)
    assert shape.fields() == (str(size), str(iterations), str(expected), text)
    assert Shape.read(shape.fields()) == shape


@pytest.mark.parametrize(("expected", "share"), [(0, 0.1), (5, 0), (5, 1), (MOST_BITS, 0.5)])
def test_impossible_filters_are_refused(expected, share):
    """Before anything is asked of Redis."""
    with pytest.raises(ValueError, match="filter"):
        Shape.made_for(expected, share)


@pytest.fixture
def filter_(client, fresh):
    """A filter for as many as WORDS."""
    filter_ = BloomFilter(client, fresh)
    assert filter_.try_init(len(WORDS), 0.01)
    return filter_


def test_what_was_added_is_found(filter_, rival):
    """By everyone, one by one and all at once; adding says what was new."""
    assert filter_.add("one")
    assert not filter_.add("one")
    assert filter_.contains("one")
    assert not filter_.contains("two")
    added = filter_.add_all(WORDS)
    assert sum(added) > 290
    again = BloomFilter(rival, filter_.name)
    assert all(again.contains_all(WORDS))
    assert again.add_all(WORDS) == [False] * len(WORDS)


def test_as_few_others_as_was_asked_for_are_taken_for_added(filter_):
    """One in a hundred, about; and the count is about right."""
    filter_.add_all(WORDS)
    taken = sum(filter_.contains_all([f"other-{number}" for number in range(2000)]))
    assert taken < 60
    assert abs(filter_.count() - len(WORDS)) < 30


def test_bytes_and_text_are_the_same_value(filter_):
    """Text counts as UTF-8."""
    filter_.add("zürich")
    assert filter_.contains("zürich".encode())


def test_nothing_is_no_question(filter_, client, monkeypatch):
    """Redis is not asked about no values."""
    monkeypatch.setattr(type(client.routes), "borrow", None)
    assert filter_.add_all([]) == filter_.contains_all([]) == []


def test_many_are_one_round_trip(filter_, client, monkeypatch):
    """Once the filter's size is known to us, and both scripts to the server (each master has its own)."""
    filter_.add("warm")
    filter_.contains("warm")
    trips, routes = [], type(client.routes)
    real = routes.borrow

    def borrow(self, place):
        trips.append(self)
        return real(self, place)

    monkeypatch.setattr(routes, "borrow", borrow)
    filter_.add_all(WORDS)
    filter_.contains_all(WORDS)
    assert trips.count(client.routes) == 2


def test_a_filter_is_made_once(filter_, client):
    """Anyone who comes later gets the one that is there."""
    assert not BloomFilter(client, filter_.name).try_init(7, 0.5)
    assert filter_.shape() == Shape.made_for(len(WORDS), 0.01)


def test_a_missing_filter_is_no_empty_one(client, fresh):
    """`no` would be a lie; also after it was deleted by another."""
    missing = BloomFilter(client, fresh)
    for ask in (missing.shape, missing.count, lambda: missing.add("a"), lambda: missing.contains("a")):
        with pytest.raises(NoSuchFilter, match="try_init"):
            ask()
    missing.try_init(10, 0.1)
    missing.add("a")
    assert BloomFilter(client, fresh).delete()
    with pytest.raises(NoSuchFilter):
        missing.contains("a")
    assert not missing.delete()


def test_a_filter_of_another_size_is_followed(filter_, rival):
    """Bits that were reckoned for the old size are neither read nor written."""
    filter_.add("a")
    again = BloomFilter(rival, filter_.name)
    again.delete()
    again.try_init(9000, 0.001)
    again.add("b")
    assert filter_.contains_all(["a", "b"]) == [False, True]


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 600])
def test_bad_names_are_refused(client, name):
    """Before anything is asked of Redis."""
    with pytest.raises(BadFilterName, match="cannot name a filter"):
        BloomFilter(client, name).try_init(10, 0.1)


def test_names_with_braces(client, fresh):
    """A tag keeps everything in one slot; what would not is refused where that matters."""
    tagged = BloomFilter(client, f"{{{fresh}}}:seen")
    assert tagged.try_init(10, 0.1)
    tagged.add("a")
    assert slot_of(settings_of(tagged.name)) == slot_of(tagged.name)
    broken = BloomFilter(client, f"{fresh}{{}}")
    if client.clustered:
        with pytest.raises(BadFilterName, match="braces"):
            broken.try_init(10, 0.1)
    else:
        assert broken.try_init(10, 0.1)


def test_a_redis_that_is_away_is_no_answer(fresh):
    """Neither yes nor no."""
    with pytest.raises(RedisUnavailable):
        BloomFilter("redis://127.0.0.1:1/0", fresh).contains("a")
