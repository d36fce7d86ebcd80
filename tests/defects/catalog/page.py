"""Defects of the web page: whom it answers, whose forms it obeys, and what it shows as it is."""

from defects.defect import Defect, Edit

ACCESS = "framework/oncemq/dashboard/access.py"
PROTECTION = "framework/oncemq/dashboard/protection.py"
WHO = "tests/unit/dashboard/test_access.py"
BROWSER = "tests/scenarios/test_dashboard_browser.py"
PAGES = "framework/oncemq/operate/letter_pages.py"
LETTERS = "tests/unit/dashboard/test_letter_pages.py"
SHOWN = "tests/unit/dashboard/test_pages.py"

DEFECTS = (
    Defect(
        "page-for-any-machine",
        "Without users the page answers its own machine only.",
        [Edit(ACCESS, "        if not _is_loopback(client):\n", "        if False:\n")],
        [f"{WHO}::test_another_machine_sees_nothing"],
    ),
    Defect(
        "page-under-any-name",
        "A name of another site that leads to this machine is refused.",
        [Edit(ACCESS, "if name.lower() not in _LOCAL_NAMES:", "if False:")],
        [f"{WHO}::test_a_foreign_host_name_is_refused"],
    ),
    Defect(
        "any-client-is-the-proxy",
        "Only the proxy's word about the user is taken.",
        [Edit(ACCESS, "        if not trusted:\n", "        if False:\n")],
        [f"{WHO}::test_a_proxy_says_who_asks"],
    ),
    Defect(
        "forms-of-other-sites",
        "A form without this page's token changes nothing.",
        [
            Edit(
                PROTECTION,
                'if not cookie or not hmac.compare_digest(self.token(cookie).encode(), form.get(FIELD, "").encode()):',
                "if False:",
            )
        ],
        [f"{WHO}::test_a_form_of_another_site_is_refused"],
    ),
    Defect(
        "page-changes-unasked",
        "A page that may only be looked at changes nothing.",
        [
            Edit(
                "framework/oncemq/dashboard/application.py",
                "        if not site.allow_changes:\n",
                "        if False:\n",
            )
        ],
        [f"{WHO}::test_nothing_is_changed_unless_it_is_allowed"],
    ),
    Defect(
        "hostile-text-is-markup",
        "Texts of messages are shown as text.",
        [
            Edit(
                "framework/oncemq/dashboard/rendering.py", "    autoescape=True,\n", "    autoescape=False,\n"
            )
        ],
        [f"{SHOWN}::test_a_hostile_key_and_body_are_text"],
    ),
    Defect(
        "password-on-the-page",
        "The configuration shows no password.",
        [
            Edit(
                "framework/oncemq/dashboard/pages/configuration.py",
                "redact(str(broker.url))",
                "broker.url._text",
            )
        ],
        [f"{SHOWN}::test_secrets_are_not_shown"],
    ),
    Defect(
        "page-begins-again-in-silence",
        "A page whose beginning left the broker says so, and is no empty page that looks like the end.",
        [Edit(PAGES, "    page.moved = True\n    yield from _numbered(found, None)\n", "")],
        [f"{LETTERS}::test_a_page_whose_beginning_left_says_so"],
    ),
    Defect(
        "search-ends-in-silence",
        "A page that may not look at more letters says where to go on.",
        [Edit(PAGES, "                page.next, page.searched = last, searched\n", "")],
        [f"{LETTERS}::test_a_rare_selection_is_searched_in_parts"],
    ),
    Defect(
        "no-body-for-a-key",
        "The key of a dead letter that another client made is read from its body.",
        [
            Edit(
                "framework/oncemq/operate/letters.py",
                "return names.KEY not in headers or names.ON_DEAD in headers",
                "return False",
            )
        ],
        [f"{LETTERS}::test_a_letter_without_a_key_shows_that_of_its_body"],
    ),
    Defect(
        "no-body-for-on-dead",
        "Replayed letters for which `on_dead` has taken effect run again: their identities are read from their bodies.",
        [
            Edit(
                "framework/oncemq/operate/letters.py",
                "return names.KEY not in headers or names.ON_DEAD in headers",
                "return names.KEY not in headers",
            )
        ],
        ["tests/unit/cli/test_kept_letters.py::test_a_replay_of_all_forgets_what_on_dead_did"],
    ),
    Defect(
        "locks-of-others-on-the-page",
        "A lock's name is no pattern.",
        [
            Edit(
                "strategies/oncemq_strategies/common/name_template.py",
                'if isinstance(part, str) else "*"',
                'if not part else part if isinstance(part, str) else "*"',
            )
        ],
        ["tests/unit/dashboard/test_locks.py::test_characters_of_patterns_in_a_name_are_plain"],
    ),
    Defect(
        "page-refuses-its-own-forms",
        "A real browser may send the page's forms: it says where they come from.",
        [Edit(PROTECTION, '"referrer-policy": "same-origin",', '"referrer-policy": "no-referrer",')],
        [f"{BROWSER}::test_all_of_a_filter_are_replayed_after_a_preview"],
    ),
    Defect(
        "lock-listed-twice",
        "SCAN names each key once.",
        [
            Edit(
                "strategies/oncemq_strategies/redisson/survey/locks.py",
                "sorted(set(names) - seen)",
                "names",
            )
        ],
        ["tests/unit/dashboard/test_locks.py::test_a_lock_that_redis_names_twice_is_one_row"],
    ),
    Defect(
        "dead-reader-listed",
        "A reader of a read-write lock whose own lease is over holds nothing.",
        [
            Edit(
                "strategies/oncemq_strategies/redisson/survey/locks.py",
                "        if last > 0:\n",
                "        if count:\n",
            )
        ],
        [
            "tests/unit/strategies/redis/redisson/test_survey.py::test_a_reader_whose_lease_is_over_is_not_listed[single]"
        ],
    ),
    Defect(
        "channels-of-handlers-untried",
        "The channels that a handler's locks need in Redis are tried before it runs.",
        [
            Edit(
                "framework/oncemq/cli/preflight.py",
                "(*strategies, *consumer.handler.outside)",
                "strategies",
            )
        ],
        [
            "tests/unit/strategies/redis/redisson/test_survey.py::test_check_names_the_channels_that_a_handler_may_not_use[semaphore]"
        ],
    ),
)
