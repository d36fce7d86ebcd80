"""A process that takes messages at a shared rate: `python -m support.redis.rated URL SCOPE RATE SECONDS`.

It prints a line when it is ready, starts at a line of its input, and prints how many it took, from when to when.
"""

import sys
import time

from oncemq.common.clock import SystemClock
from oncemq.engine.rates.rule import RateRule
from oncemq.engine.rates.shared_rate import SharedRate
from oncemq.redis.connect import make_client
from support.queued import waiting


def main() -> None:
    """Run."""
    url, scope, rate, seconds = sys.argv[1:]
    client, clock = make_client(url), SystemClock()
    client.command("GET", scope, key=scope)
    scheduler = waiting(clock, 5_000)
    scheduler.rate_limit = SharedRate(RateRule(float(rate), 1, shared=True), client, scope, clock, sys.exit)
    say("ready")
    sys.stdin.readline()
    began, count = time.time(), 0
    while time.time() < began + float(seconds):
        taken = scheduler.take(500, 0.05)
        scheduler.done(taken)
        count += len(taken)
    say(f"{count} {began} {time.time()}")


def say(line: str) -> None:
    """Tell the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
