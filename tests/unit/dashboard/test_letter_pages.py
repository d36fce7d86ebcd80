"""Pages of dead letters: each begins where the one before ended, and none looks at more than a number of them."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html import unescape

import pytest

from oncemq.dashboard.pages import dead_letters as pages
from oncemq.dashboard.pages import key as key_page
from oncemq.ledger.messages import dead_letters
from oncemq.message import headers as names
from oncemq.message.envelope import Message
from unit.dashboard.conftest import Visitor

FIRST = "/dead-letters"


def keep(visitor: Visitor, *keys: str, consumer: int = 0, error: str = "why") -> None:
    """Store dead letters in the ledger."""
    scope = visitor.site.plan.consumers[consumer].scope
    with visitor.site.plan.engines[0].begin() as connection:
        for key in keys:
            headers = {names.KEY: key, names.REASON: "rejected", names.ERROR_TEXT: error}
            dead_letters.add(connection, scope, Message("order.paid", b"{}"), headers, datetime.now(UTC))


def bury(visitor: Visitor, *keys: str) -> None:
    """Publish dead letters to the broker."""
    for key in keys:
        visitor.line.publish_dead_letters(b"{}", KEY=key, REASON="rejected", ERROR_TEXT="why")


def next_of(visitor: Visitor, address: str) -> str | None:
    """Return the address of the next page."""
    found = re.search(r'rel="next" href="([^"]+)"', visitor.see(address))
    return FIRST + unescape(found[1]) if found else None


def keys_of_pages(visitor: Visitor, address: str) -> Iterator[list[str]]:
    """Yield the keys of each page, from this one to the last."""
    at: str | None = address
    while at is not None:
        yield visitor.keys(at)
        at = next_of(visitor, at)


def test_pages_go_on_where_the_one_before_ended(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the ledger's letters to the broker's, and from one consumer to the next; none twice, none left out."""
    monkeypatch.setattr(pages, "PAGE", 2)
    keep(visitor, "l1", "l2", "l3")
    bury(visitor, "b1", "b2", "b3")
    keep(visitor, "m1", "m2", consumer=1)
    whole = [["l1", "l2"], ["l3", "b1"], ["b2", "b3"], ["m1", "m2"]]
    assert list(keys_of_pages(visitor, FIRST)) == whole
    assert list(keys_of_pages(visitor, f"{FIRST}?consumer=award")) == whole[:3]


def test_a_page_of_a_filter_keeps_the_filter(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next page is one of the same selection."""
    monkeypatch.setattr(pages, "PAGE", 2)
    for _ in range(3):
        keep(visitor, "a")
        keep(visitor, "b", error="other")
    assert list(keys_of_pages(visitor, f"{FIRST}?error=why")) == [["a", "a"], ["a"]]


def test_letters_that_left_do_not_shift_a_page(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was replayed on the first page hides nothing of the second."""
    monkeypatch.setattr(pages, "PAGE", 2)
    bury(visitor, "b1", "b2", "b3", "b4")
    second = next_of(visitor, FIRST)
    assert second is not None
    visitor.line.run("dead-letters", "purge", "award", "--key", "b1", "--yes")
    assert visitor.keys(second) == ["b3", "b4"]


@pytest.mark.parametrize("gone", [("b2",), ("b1", "b2"), ("b2", "b3")])
def test_a_page_whose_beginning_left_says_so(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch, gone: tuple[str, ...]
) -> None:
    """It begins with the first one that there is; the ledger knows what is behind a letter that is gone."""
    monkeypatch.setattr(pages, "PAGE", 2)
    bury(visitor, "b1", "b2", "b3", "b4")
    second = next_of(visitor, FIRST)
    assert second is not None
    assert "is gone" not in visitor.see(second)
    for key in gone:
        visitor.line.run("dead-letters", "purge", "award", "--key", key, "--yes")
    assert "is gone" in visitor.see(second)
    assert visitor.keys(second) == [key for key in ("b1", "b2", "b3", "b4") if key not in gone][:2]


def test_a_rare_selection_is_searched_in_parts(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page looks at a number of letters, says so, and goes on from there; nothing of the selection is left out."""
    monkeypatch.setattr(pages, "MAX_GROUPED", 3)
    keep(visitor, "a", "x", "x", "x", "x", "x", "b", "x")
    first = f"{FIRST}?key=b"
    assert "Dead letters that were looked at: 3" in visitor.see(first)
    assert "Go on searching" in visitor.see(first)
    assert list(keys_of_pages(visitor, first)) == [[], [], ["b"]]


def test_groups_say_that_not_all_were_read(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where that is so."""
    said = "only the oldest were read, at most: 3"
    monkeypatch.setattr(pages, "MAX_GROUPED", 3)
    keep(visitor, "a", "b")
    assert said not in visitor.see(f"{FIRST}?group=1")
    keep(visitor, "c")
    assert said in visitor.see(f"{FIRST}?group=1")


def test_the_page_of_a_key_looks_at_a_number_of_letters(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, and what looks at all of them."""
    monkeypatch.setattr(key_page, "MAX_LETTERS", 2)
    keep(visitor, "x", "a")
    assert "only the oldest" not in visitor.see("/key?key=a")
    keep(visitor, "a")
    text = visitor.see("/key?key=a")
    assert "only the oldest 2 dead letters on broker shop were looked at" in text
    assert text.count("ledger-") == 1
    assert visitor.line.run("inspect", "a").stdout.count("ledger-") == 2


def test_a_letter_without_a_key_shows_that_of_its_body(visitor: Visitor) -> None:
    """Where another client made it, its body is read for the page."""
    scope = visitor.site.plan.consumers[0].scope
    with visitor.site.plan.engines[0].begin() as connection:
        body = b'{"order_id": "from-body"}'
        dead_letters.add(connection, scope, Message("order.paid", body), {}, datetime.now(UTC))
    assert visitor.keys(FIRST) == ["from-body"]
