"""What a broker knows about a message never becomes its key."""

import pytest

from oncemq.errors import MissingKey
from oncemq.message.decoding import make_decoder
from oncemq.message.envelope import Message
from oncemq.message.reader import Reader


@pytest.mark.parametrize("key", ["body.id", "[body.shop, body.id]"])
@pytest.mark.parametrize("body", [b"{}", b'{"id": null, "shop": "a"}'])
def test_a_missing_key_is_not_replaced_by_the_brokers_message_id(key: str, body: bytes) -> None:
    """Else every redelivery under another id would be a message of its own, and take effect again."""
    reader = Reader("shop", "orders", "loyalty", key=key, version=None, identity=(), decoder=make_decoder())
    with pytest.raises(MissingKey):
        reader.read(Message("orders", body, "broker-1", keys=("broker-key",)))
