"""Another service, without the shop's database: has a payment arrived? Arguments: identities such as `o-1:p-1`.

With the argument `forget` it deletes everything that the shop keeps in Redis.
"""

import os
import sys

import redis

from oncemq_strategies.redisson import BloomFilter

client = redis.Redis.from_url(os.environ.get("REDIS", "redis://localhost:6379/0"))


def ask(identities: list[str]) -> None:
    """Print the filter's answers."""
    booked = BloomFilter(client, "payments-booked")
    for identity, maybe in zip(identities, booked.contains_all(identities), strict=True):
        print(f"{identity}: {'booked, as good as surely' if maybe else 'not booked'}")


def forget() -> None:
    """Delete marks and filter."""
    for pattern in ("oncemq:mark:payments-callback.*", "*payments-booked*"):
        for key in client.scan_iter(pattern):
            client.delete(key)
    print("Redis has forgotten")


if __name__ == "__main__":
    if sys.argv[1:] == ["forget"]:
        forget()
    else:
        ask(sys.argv[1:])
