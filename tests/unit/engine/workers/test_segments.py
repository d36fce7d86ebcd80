"""How a take is cut into units."""

from oncemq.common.sharding import Layout
from oncemq.engine.workers.placement import segments, split
from oncemq.errors import MissingKey
from oncemq.message.envelope import Delivery, Message


def delivery(name: str) -> Delivery:
    """Return a delivery: one whose name begins with `s` is a crash suspect, with `r` it was refused."""
    made = Delivery(Message("orders", name.encode()))
    made.suspect = name.startswith("s")
    made.refusal = MissingKey("no key") if name.startswith("r") else None
    return made


def test_suspects_have_units_of_their_own() -> None:
    """What may end the process is run alone; what stands between stays together."""
    taken = [delivery(name) for name in ("a", "b", "s1", "s2", "c", "d")]
    units = [[made.message.body.decode() for made in unit] for unit in segments(taken)]
    assert units == [["a", "b"], ["s1"], ["s2"], ["c", "d"]]


def test_refused_messages_do_not_divide_a_unit() -> None:
    """They follow it together, since they run in no transaction; each part of a unit would need one."""
    taken = [delivery(name) for name in ("a", "r1", "b", "r2", "s1", "r3", "c")]
    units = [[made.message.body.decode() for made in unit] for unit in segments(taken)]
    assert units == [["a", "b"], ["r1", "r2"], ["s1"], ["c"], ["r3"]]


def test_a_unit_is_on_one_shard_and_full_at_the_limit() -> None:
    """Each shard's messages keep their order; more than the limit are several units, so that the limit can grow."""
    layout = Layout.even(2)
    taken = [delivery(str(number)) for number in range(40)]
    for got in taken:
        got.key = got.message.body.decode()
    units = [[delivery.key for delivery in unit] for unit in split(iter([taken]), layout, 8)]
    assert all(len({layout.shard_of(key) for key in unit}) == 1 for unit in units)
    assert sorted(len(unit) == 8 for unit in units).count(False) <= layout.shards
    for shard in range(layout.shards):
        mine = [key for unit in units for key in unit if layout.shard_of(key) == shard]
        assert mine == [delivery.key for delivery in taken if layout.shard_of(delivery.key) == shard]
