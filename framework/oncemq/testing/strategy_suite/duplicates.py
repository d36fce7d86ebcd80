"""Copies, disorder and other content: cases that a chain must distinguish."""

import random

from oncemq.contracts.verdict import Outcome
from oncemq.testing.strategy_suite.base import SuitePart
from oncemq.testing.strategy_suite.bench import Bench, message
from oncemq.testing.strategy_suite.chain_spec import ChainSpec


class Duplicates(SuitePart):
    """Copies of a message take effect once."""

    def test_a_second_copy_has_no_effect(self, bench: Bench) -> None:
        """A copy in a later unit is a duplicate."""
        assert bench.deliver(message("a", 1)) == [Outcome.PROCEED]
        assert bench.deliver(message("a", 1)) == [Outcome.DUPLICATE]
        assert bench.effects() == [("a", 1)]

    def test_copies_in_one_unit_have_one_effect(self, bench: Bench) -> None:
        """The first copy runs, the others are duplicates of it."""
        outcomes = bench.deliver(message("a", 1), message("b", 1), message("a", 1), message("a", 1))
        assert outcomes == [Outcome.PROCEED, Outcome.PROCEED, Outcome.DUPLICATE, Outcome.DUPLICATE]
        assert bench.effects() == [("a", 1), ("b", 1)]

    def test_the_next_message_of_a_key_is_no_duplicate(self, bench: Bench) -> None:
        """Another version is another message, in the same unit and in the next."""
        assert bench.deliver(message("a", 1), message("a", 2)) == [Outcome.PROCEED] * 2
        assert bench.deliver(message("a", 3)) == [Outcome.PROCEED]
        assert bench.effects() == [("a", 1), ("a", 2), ("a", 3)]

    def test_keys_are_compared_byte_by_byte(self, bench: Bench) -> None:
        """Case, trailing blanks, accents and markup make different keys."""
        keys = [
            "zz",
            "zz ",
            "ZZ",
            "zz\t",
            "z",
            "é",
            "e\u0301",
            "e",
            "%s",
            "'; --",
            "\\",
            "\U0001f600",
            "[]",
            "{}",
            ":",
        ]
        assert bench.deliver(*(message(key, 1) for key in keys)) == [Outcome.PROCEED] * len(keys)
        assert bench.deliver(*(message(key, 1) for key in keys)) == [Outcome.DUPLICATE] * len(keys)
        assert len(bench.effects()) == len(keys)

    def test_a_late_message_is_stale(self, bench: Bench, chain: ChainSpec) -> None:
        """Where the chain knows the order, a message after a newer one has no effect; elsewhere it runs."""
        if not chain.late_is_stale and not chain.parks:
            assert bench.deliver(message("b", 3), message("b", 2)) == [Outcome.PROCEED] * 2
            return
        assert bench.deliver(message("a", 1), message("a", 2)) == [Outcome.PROCEED] * 2
        assert bench.deliver(message("a", 1)) in ([Outcome.STALE], [Outcome.DUPLICATE])
        if chain.parks:
            # A gap would be waited for; a message after two newer ones is late in any case.
            assert bench.deliver(message("a", 3)) == [Outcome.PROCEED]
            assert bench.deliver(message("a", 1)) in ([Outcome.STALE], [Outcome.DUPLICATE])
            assert bench.effects() == [("a", 1), ("a", 2), ("a", 3)]
            return
        assert bench.deliver(message("b", 3), message("b", 2))[1] is Outcome.STALE
        assert bench.effects() == [("a", 1), ("a", 2), ("b", 3)]

    def test_a_conflict_is_not_a_duplicate(self, bench: Bench, chain: ChainSpec) -> None:
        """The same identity with other content is a conflict where the chain compares it, otherwise a duplicate."""
        if not chain.compares_content:
            outcomes = bench.deliver(message("a", 1, amount=5), message("a", 1, amount=6))
            assert outcomes == [Outcome.PROCEED, Outcome.DUPLICATE]
            return
        assert bench.deliver(message("a", 1, amount=5), message("a", 1, amount=6)) == [
            Outcome.PROCEED,
            Outcome.CONFLICT,
        ]
        assert bench.deliver(message("a", 1, amount=7), message("a", 1, amount=5)) == [
            Outcome.CONFLICT,
            Outcome.DUPLICATE,
        ]
        assert bench.effects() == [("a", 1)]

    def test_many_shuffled_copies(self, bench: Bench) -> None:
        """Everything twice, in random order and random units: no message takes effect twice, each key's last does once."""
        draw = random.Random(7)  # noqa: S311 - a repeatable shuffle
        messages = [message(f"k{key}", number) for key in range(20) for number in range(1, 6)] * 2
        draw.shuffle(messages)
        while messages:
            size = draw.randint(1, 40)
            bench.deliver_all(*messages[:size])
            messages = messages[size:]
        effects = bench.effects()
        assert len(effects) == len(set(effects))
        assert {key for key, number in effects if number == 5} == {f"k{key}" for key in range(20)}
