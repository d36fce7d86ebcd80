"""What is refused where it is published, since its broker would refuse it for ever."""

import pytest

from oncemq.errors import Unpublishable
from oncemq.message.decoding import make_decoder
from oncemq.message.outgoing import OutgoingTopic


def topic(max_headers: int | None) -> OutgoingTopic:
    """Return a topic whose broker takes so many bytes of headers."""
    return OutgoingTopic("shipped", "main", {}, "json", make_decoder("json"), None, max_headers=max_headers)


def test_headers_beyond_what_the_broker_takes_are_refused() -> None:
    """In bytes, names and values together; the error says how many."""
    with pytest.raises(Unpublishable, match=r"2,0\d\d bytes, and its broker takes 2,000"):
        topic(2000).message({}, headers={"h": "é" * 1000})


@pytest.mark.parametrize(("limit", "size"), [(2000, 900), (None, 200_000)])
def test_other_headers_are_taken(limit: int | None, size: int) -> None:
    """Below the limit, and where there is none."""
    assert topic(limit).message({}, headers={"h": "x" * size}).headers["h"] == "x" * size
