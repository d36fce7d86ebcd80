"""How a take is cut into units."""

from oncemq.errors import MissingKey
from oncemq.message.envelope import Delivery, Message
from oncemq.run.worker import segments


def delivery(name: str) -> Delivery:
    """Return a delivery: one whose name begins with `s` is a crash suspect, with `r` it was refused."""
    made = Delivery(Message("orders", name.encode()))
    made.suspect = name.startswith("s")
    made.refusal = MissingKey("no key") if name.startswith("r") else None
    return made


def test_suspects_and_refused_messages_have_units_of_their_own() -> None:
    """What may end the process, or cannot run at all, takes nobody with it; what stands between stays together."""
    taken = [delivery(name) for name in ("a", "b", "s1", "s2", "c", "r1", "d", "e")]
    units = [[one.message.body.decode() for one in unit] for unit in segments(taken)]
    assert units == [["a", "b"], ["s1"], ["s2"], ["c"], ["r1"], ["d", "e"]]
