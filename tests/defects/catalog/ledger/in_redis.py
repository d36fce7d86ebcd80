"""Defects of what is kept in Redis, and of the way to it."""

from defects.defect import Defect, Edit

SCRIPTS = "strategies/oncemq_strategies/redisson/bloom_scripts.py"
SHARED = "tests/unit/strategies/redis/test_tiered_shared_filter.py"
FILTERS = "tests/unit/strategies/redis/test_bloom.py"
TLS = "tests/unit/redis/test_tls.py"

DEFECTS = (
    Defect(
        "filter-forgets-too-early",
        "A shared filter remembers everything of its time: only a generation that is no longer young makes room.",
        [Edit(SCRIPTS, " and redis.call('exists', KEYS[5]) == 0 then", " then")],
        [f"{SHARED}::test_a_young_generation_stays[single]"],
    ),
    Defect(
        "filter-of-others-renewed",
        "A filter that a Java service made is that service's to renew.",
        [Edit(SCRIPTS, "local foreign = redis.call('pttl', KEYS[2]) == -1", "local foreign = false")],
        [f"{SHARED}::test_a_filter_that_others_made_is_theirs[single]"],
    ),
    Defect(
        "filter-of-another-size",
        "Bits that were reckoned for another size are neither read nor written.",
        [Edit(SCRIPTS, "if have[1] ~= ARGV[1] or have[2] ~= ARGV[2] then", "if false then")],
        [f"{FILTERS}::test_a_filter_of_another_size_is_followed[single]"],
    ),
    Defect(
        "redis-host-not-compared",
        "Redis is told nothing, and no password, unless it proves to be the host that was asked for.",
        [Edit("framework/oncemq/redis/tls.py", '"ssl_check_hostname": True', '"ssl_check_hostname": False')],
        [f"{TLS}::test_a_server_must_prove_who_it_is[wrong host]"],
    ),
    Defect(
        "restore-goes-unnoticed",
        "Marks are not believed when the ledger is behind what Redis remembers of it.",
        [Edit("framework/oncemq/ledger/restore_detection.py", "seen is not None and before < seen", "False")],
        [
            "tests/unit/ledger/test_restore_detection.py::test_what_was_seen_and_is_gone_shows_that_the_ledger_went_back",
            "tests/unit/strategies/redis/test_tiered.py::test_a_restore_is_noticed_by_itself[single]",
        ],
    ),
    Defect(
        "loading-is-a-lost-connection",
        "What a loading server refuses goes to the server that the name means now.",
        [
            Edit(
                "framework/oncemq/redis/faults.py",
                'return "BusyLoadingError" in names or ("ResponseError" in names',
                'return ("ResponseError" in names',
            )
        ],
        [
            "tests/unit/redis/test_managed_failover.py::test_each_refusal_of_an_old_master_leads_to_the_new_one"
        ],
    ),
)
