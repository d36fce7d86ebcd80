"""Defects of judging failures: errors as text, delays, and an error that is one message's."""

from defects.defect import Defect, Edit

SETTLE = "tests/unit/run/test_settle.py"

DEFECTS = (
    Defect(
        "retry-takes-anything",
        "Retry refuses a delay that is none where it is raised.",
        [
            Edit(
                "framework/oncemq/errors.py",
                "None if after is None else delay_of(after)",
                "after  # type: ignore[assignment]",
            )
        ],
        ["tests/unit/run/test_judge.py::test_retry_refuses_any_other_delay_where_it_is_raised"],
    ),
    Defect(
        "settling-thread-dies",
        "An error while one message is settled is that message's, and the thread lives.",
        [
            Edit(
                "framework/oncemq/run/aftermath.py",
                "            if len(failed) == 1:\n",
                "            if True:\n                raise\n            if len(failed) == 1:\n",
            )
        ],
        ["tests/unit/run/test_aftermath.py::test_a_settlement_that_raises_is_that_messages_alone"],
    ),
    Defect(
        "strange-error-of-a-send-is-everybodys",
        "What an adapter raises about one message does not reach those sent with it.",
        [
            Edit(
                "framework/oncemq/run/sending.py",
                "        if len(parts) == 1:\n",
                "        raise\n        if len(parts) == 1:\n",
            )
        ],
        [f"{SETTLE}::test_an_error_about_one_message_does_not_reach_its_neighbours"],
    ),
    Defect(
        "error-text-unguarded",
        "An exception whose own text cannot be made is described all the same.",
        [
            Edit(
                "framework/oncemq/error_text.py",
                "        return clean_text(str(error), limit)\n    except BaseException:",
                "        return clean_text(str(error), limit)\n    except KeyError:",
            )
        ],
        ["tests/unit/test_error_text.py::test_an_error_that_raises_from_its_methods_is_described"],
    ),
    Defect(
        "error-text-unclean",
        "An error's text is clean where it is made: no lone surrogate, no NUL.",
        [Edit("framework/oncemq/error_text.py", '"backslashreplace"', '"surrogatepass"')],
        ["tests/unit/test_error_text.py::test_what_no_place_can_keep_is_escaped"],
    ),
)
