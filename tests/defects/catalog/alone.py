"""Defects of rule 20: what neighbours of a unit would notice of each other."""

from defects.defect import Defect, Edit

SUITE = "tests/alone/test_as_if_alone.py::test_programs_leave_the_same_behind_in_units_of_any_size"
ITEMS = "framework/oncemq/run/items.py"

DEFECTS = (
    Defect(
        "neighbours-not-flushed",
        "Before a handler's first statement, what earlier messages left pending is in the database.",
        [Edit(ITEMS, "        self.frame.bring(self.run)\n", "")],
        [SUITE],
    ),
    Defect(
        "settings-shared",
        "A message that sets something on the connection runs in a transaction of its own.",
        [Edit("framework/oncemq/run/watch.py", "        if not self.isolated:", "        if False:")],
        [SUITE],
    ),
    Defect(
        "connection-not-cleaned",
        "What a handler set on a connection is gone before another message has it.",
        [
            Edit(
                "framework/oncemq/run/attempt.py",
                "                clean(connection, thoroughly=watch.raw)\n",
                "                pass\n",
            )
        ],
        [SUITE],
    ),
)
