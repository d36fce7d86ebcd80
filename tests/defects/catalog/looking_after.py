"""Defects of commands that look after an app: what they count, hold, move and say."""

from defects.defect import Defect, Edit

RABBIT_LETTERS = "adapters/oncemq_adapters/rabbitmq/dead_letters.py"
RABBIT_SUITE = "tests/suites/test_rabbitmq_dead_letters.py"

DEFECTS = (
    Defect(
        "acknowledged-tag-given-back",
        "After the last dead letter is done, nothing is given back to RabbitMQ by an acknowledged tag.",
        [
            Edit(RABBIT_LETTERS, "if self._taken > self.removed:", "if self._taken:"),
            Edit(RABBIT_LETTERS, "basic_nack(0, multiple", "basic_nack(self._taken, multiple"),
        ],
        [f"{RABBIT_SUITE}::test_all_letters_are_done_with_a_true_count"],
    ),
    Defect(
        "listing-collects-every-letter",
        "A listing of dead letters takes only what is read.",
        [
            Edit(
                RABBIT_LETTERS,
                "        for _, properties, body in look:\n            message = _with_reason(",
                "        for _, properties, body in list(look):\n            message = _with_reason(",
            )
        ],
        [f"{RABBIT_SUITE}::test_a_listing_takes_only_what_is_read"],
    ),
    Defect(
        "alike-letters-done-once",
        "Two dead letters with one id are both done.",
        [Edit(RABBIT_LETTERS, "wanted = Counter(ids)", "wanted = Counter(set(ids))")],
        [f"{RABBIT_SUITE}::test_letters_that_are_alike_are_all_done"],
    ),
)
