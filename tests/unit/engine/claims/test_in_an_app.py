"""Large bodies in a store, in running apps."""

from datetime import date
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from oncemq import App, Publisher, Reject, Retry
from oncemq.errors import ClaimStoreUnavailable
from oncemq.message.claims.store import MARKER, Store
from support.patience import PATIENCE

WAIT = 60 * PATIENCE
IDLE = "300ms"


def body(key: str, **more: Any) -> dict[str, Any]:
    """Return a body that is larger than those which stay in their messages."""
    return {"id": key, "text": key * 5000, **more}


class Shop:
    """An app with a store, and what its handlers got.

    Args:
        folder: of its broker, its database and its store.
        topic: further options of its topic.
        options: of its consumer.
    """

    def __init__(self, folder: Path, topic: dict[str, Any] | None = None, **options: Any) -> None:
        self.folder = folder
        self.store = folder / "bodies"
        self.got: list[Any] = []
        self.some = Event()
        self.refuses = False
        self.retries = 0
        self.app = App(
            "shop", brokers={"main": f"embedded:///{folder}/b.db"}, database=f"sqlite:///{folder}/s.db"
        )
        more = {
            "claim_check": {"store": f"file://{self.store}", "over": "1KiB", "most": "1MiB"},
            **(topic or {}),
        }
        self.app.topic("orders", key="body.id", strategies=["unique_key"], **more)
        self.app.consumer(topic="orders", name="pay", **options)(self.pay)
        self.app.create_tables()

    def pay(self, order: dict[str, Any]) -> None:
        """Note the order."""
        if self.refuses:
            raise Reject("not now")
        self.got.append(order)
        if len(self.got) <= self.retries:
            raise Retry("once more")
        self.some.set()

    def run(self) -> None:
        """Run the app until nothing comes any more."""
        assert self.app.run(until_idle=IDLE) == 0

    def away(self) -> None:
        """Let the store be away: its place cannot be read."""
        self.store.rename(self.folder / "moved")
        self.store.touch()

    def back(self) -> None:
        """Let it be back."""
        self.store.unlink()
        (self.folder / "moved").rename(self.store)

    def bodies(self) -> list[Path]:
        """Return the files of bodies."""
        return sorted(each for each in self.store.rglob("*") if each.is_file() and each.name != MARKER)

    def reasons(self) -> list[str | None]:
        """Return the reasons of dead letters."""
        return sorted(str(letter.reason) for letter in self.app.dead_letters.list("pay"))


def test_a_large_body_lies_in_the_store_and_arrives_whole(tmp_path: Path) -> None:
    """The message refers to it; a small body stays in its message."""
    shop = Shop(tmp_path)
    for order in (body("a"), {"id": "b"}):
        shop.app.publish("orders", order)
    shop.run()
    assert shop.got == [body("a"), {"id": "b"}]
    assert len(shop.bodies()) == 1


def test_what_is_published_twice_is_one_file(tmp_path: Path) -> None:
    """A handler that is tried again does not fill the store."""
    shop = Shop(tmp_path)
    for _ in range(2):
        shop.app.publish("orders", body("a"))
    shop.run()
    assert (shop.got, len(shop.bodies())) == ([body("a")], 1)


def test_messages_keep_their_order_behind_one_that_is_fetched(tmp_path: Path) -> None:
    """A small message of the same key does not overtake a large one."""
    shop = Shop(tmp_path, {"identity": "body.n"})
    for number in range(20):
        shop.app.publish("orders", body("a", n=number) if number % 2 else {"id": "a", "n": number})
    shop.run()
    assert [order["n"] for order in shop.got] == list(range(20))


def test_a_retry_refers_to_the_same_body(tmp_path: Path) -> None:
    """The second try gets the whole body, by a copy that refers to it, too."""
    shop = Shop(tmp_path, retry={"backoff": {"first": "1ms"}})
    shop.retries = 2
    shop.app.publish("orders", body("a"))
    shop.run()
    assert shop.got == [body("a")] * 3
    assert len(shop.bodies()) == 1


def test_a_dead_letter_keeps_the_reference_and_is_replayed(tmp_path: Path) -> None:
    """The replayed message gets its body from the store."""
    shop = Shop(tmp_path)
    shop.refuses = True
    shop.app.publish("orders", body("a"))
    shop.run()
    (letter,) = shop.app.dead_letters.list("pay")
    assert (letter.key, letter.reason, len(letter.body) < 200) == ("a", "rejected", True)
    shop.refuses = False
    assert shop.app.dead_letters.replay(key="a") == 1
    shop.run()
    assert shop.got == [body("a")]


def test_a_replayed_letter_whose_body_was_purged_says_so(tmp_path: Path) -> None:
    """It is a dead letter again, with another reason, and can still be listed."""
    shop = Shop(tmp_path)
    shop.refuses = True
    shop.app.publish("orders", body("a"))
    shop.run()
    for each in shop.bodies():
        each.unlink()
    assert shop.app.dead_letters.replay("pay", everything=True) == 1
    shop.run()
    (letter,) = shop.app.dead_letters.list("pay")
    assert letter.reason == "claim-gone"
    assert "is not in the store" in str(letter.error) or "any more" in str(letter.error)


def test_a_body_that_is_gone_is_a_dead_letter(tmp_path: Path) -> None:
    """Its reason says so, its neighbour is applied, and nothing is tried again."""
    shop = Shop(tmp_path)
    shop.app.publish("orders", body("a"))
    for each in shop.bodies():
        each.unlink()
    shop.app.publish("orders", body("b"))
    shop.run()
    assert (shop.got, shop.reasons()) == ([body("b")], ["claim-gone"])


def test_an_altered_body_is_a_dead_letter(tmp_path: Path) -> None:
    """Whether it got longer or only other."""
    shop = Shop(tmp_path)
    for key in "ab":
        shop.app.publish("orders", body(key))
    longer, other = shop.bodies()
    longer.write_bytes(longer.read_bytes() + b" ")
    other.write_bytes(other.read_bytes().replace(b"text", b"TEXT"))
    shop.app.publish("orders", body("c"))
    shop.run()
    assert (shop.got, shop.reasons()) == ([body("c")], ["claim-altered"] * 2)


def test_a_consumer_waits_for_a_store_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No message is charged or lost, and all are applied when the store is back."""
    shop, failed = Shop(tmp_path, retry={"attempts": 1}), Event()
    asked = Store.get

    def get(store: Store, name: str, most: int) -> bytes | None:
        try:
            return asked(store, name, most)
        except ClaimStoreUnavailable:
            failed.set()
            raise

    monkeypatch.setattr(Store, "get", get)
    shop.app.publish("orders", body("a"))
    shop.app.publish("orders", {"id": "a", "later": 1})
    shop.away()
    shop.app.start()
    try:
        assert failed.wait(WAIT)
        failed.clear()
        assert failed.wait(WAIT)
        assert shop.got == []
        shop.back()
        assert shop.some.wait(WAIT)
    finally:
        assert shop.app.stop() == 0
    shop.run()
    assert shop.got == [body("a")]
    assert shop.reasons() == []


def test_a_process_stops_while_the_store_is_away(tmp_path: Path) -> None:
    """What waits for its body goes back to the broker."""
    shop = Shop(tmp_path)
    shop.app.publish("orders", body("a"))
    shop.away()
    shop.app.start()
    assert shop.app.stop() == 0
    shop.back()
    shop.run()
    assert shop.got == [body("a")]


@pytest.mark.parametrize("effects", ["database", "external"])
def test_a_handler_that_publishes_waits_for_the_store(tmp_path: Path, effects: str) -> None:
    """Its message is not charged: with a single attempt allowed, it takes effect when the store is back."""
    shop, failed, done = Shop(tmp_path), Event(), Event()
    shop.app.topic("carts", key="body.id", strategies=["unique_key" if effects == "database" else "none"])

    @shop.app.consumer(topic="carts", name="order", effects=effects, retry={"attempts": 1})
    def order(cart: dict[str, Any], publisher: Publisher) -> None:
        try:
            publisher.publish("orders", body(cart["id"]))
        except ClaimStoreUnavailable:
            failed.set()
            raise
        done.set()

    shop.app.publish("carts", {"id": "a"})
    shop.store.mkdir(exist_ok=True)
    shop.away()
    shop.app.start()
    try:
        assert failed.wait(WAIT)
        shop.back()
        assert done.wait(WAIT)
        assert shop.some.wait(WAIT)
    finally:
        assert shop.app.stop() == 0
    assert shop.got == [body("a")]
    assert shop.app.dead_letters.list("order") == []


def test_outside_of_handlers_publishing_says_that_the_store_is_away(tmp_path: Path) -> None:
    """Nothing is sent; a small body needs no store."""
    shop = Shop(tmp_path)
    shop.store.touch()
    with pytest.raises(ClaimStoreUnavailable, match="keeping a body in file:"):
        shop.app.publish("orders", body("a"))
    shop.app.publish("orders", {"id": "b"})
    shop.run()
    assert shop.got == [{"id": "b"}]


def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """By `most`, before anything is stored."""
    shop = Shop(tmp_path)
    with pytest.raises(Exception, match="the most is 1,048,576"):
        shop.app.publish("orders", {"id": "a", "text": "x" * 1_100_000})
    assert shop.bodies() == []


def test_a_delayed_message_refers_to_a_body_that_is_kept_until_it_is_due(tmp_path: Path) -> None:
    """Its folder is named by the day until which it is needed."""
    shop = Shop(tmp_path)
    with shop.app.publisher() as publisher:
        publisher.publish("orders", body("a"))
        publisher.publish("orders", body("b"), delay="300d")
    soon, late = (each.parent.name for each in shop.bodies())
    assert (date.fromisoformat(late) - date.fromisoformat(soon)).days in (299, 300, 301)
