"""Defects of read-write locks and semaphores in Redis."""

from defects.defect import Defect, Edit

READ_WRITE = "strategies/oncemq_strategies/redisson/read_write/scripts.py"
PERMITS = "strategies/oncemq_strategies/redisson/semaphores/scripts.py"
LOCKS = "tests/unit/strategies/redis/redisson/test_read_write.py"
ARGUMENTS = "strategies/oncemq_strategies/redisson/handlers/arguments.py"
HANDLERS = "tests/unit/strategies/redis/redisson/test_in_handlers.py"
SEMAPHORES = "tests/unit/strategies/redis/redisson/test_semaphores.py"

RELEASES = "strategies/oncemq_strategies/redisson/releases.py"
RELEASED = "tests/unit/strategies/redis/redisson/test_releases.py"

DEFECTS = (
    Defect(
        "one-reader-released-for-all",
        "An operator who takes a lock away from one reader leaves it to the others.",
        [Edit(RELEASES, "    if held.kind not in {READ, WRITE}:\n", "    if held.kind != WRITE:\n")],
        [f"{RELEASED}::test_one_dead_reader_is_taken_out[single]"],
    ),
    Defect(
        "taken-away-unheard",
        "Who waits for a read-write lock is woken when an operator takes it away.",
        [Edit(RELEASES, "read_write_channel_of(held.name)]", "semaphore_channel_of(held.name)]")],
        [f"{RELEASED}::test_a_waiting_reader_is_woken[single]"],
    ),
    Defect(
        "dead-reader-keeps-writers-out",
        "A reader that died holds a read-write lock for its own lease, not for that of others who read.",
        [Edit(READ_WRITE, "longest = math.max(longest, ends)", "longest = redis.call('pttl', KEYS[1])")],
        [f"{LOCKS}::test_a_reader_that_died_does_not_keep_a_writer_out[single]"],
    ),
    Defect(
        "living-reader-not-found",
        "The release of one reader leaves the lock to the readers that live.",
        [Edit(READ_WRITE, "if longest > 0 then", "if false then")],
        [f"{LOCKS}::test_a_reader_that_lives_is_found_by_its_lease[single]"],
    ),
    Defect(
        "holds-of-readers-not-renewed",
        "A reader that lives is renewed with each of its holds, so no other's release takes it for dead.",
        [Edit(READ_WRITE, "if redis.call('pttl', key) < lease then", "if false then")],
        [f"{LOCKS}::test_a_reader_is_renewed_with_each_of_its_holds[single]"],
    ),
    Defect(
        "lock-of-another-kind-overwritten",
        "A read-write lock does not take a lock of another kind from its holder.",
        [
            Edit(
                READ_WRITE,
                "if not mode and redis.call('exists', KEYS[1]) == 1 then return -4 end\nif mode == 'write'",
                "if mode == 'write'",
            )
        ],
        [f"{LOCKS}::test_a_plain_lock_of_the_same_name_is_respected[single]"],
    ),
    Defect(
        "permits-counted-twice",
        "A change of a semaphore whose answer was lost is made once.",
        [Edit(PERMITS, "if made then return tonumber(made) end", "")],
        [f"{SEMAPHORES}::test_a_lost_answer_changes_the_number_once[single]"],
    ),
    Defect(
        "permit-taken-twice",
        "An expiring permit whose answer was lost is taken once.",
        [Edit(PERMITS, "if redis.call('zscore', KEYS[2], ARGV[4]) then return -3 end", "")],
        [f"{SEMAPHORES}::test_a_lost_answer_takes_and_gives_one_permit[single]"],
    ),
    Defect(
        "messages-share-a-lock",
        "Each call of a handler is an owner of its own, so the locks of one message exclude those of another in its thread.",
        [Edit(ARGUMENTS, "owners.setdefault(item, uuid4().hex)", 'owners.setdefault(item, "handler")')],
        [f"{HANDLERS}::test_messages_on_one_event_loop_exclude_each_other[single]"],
    ),
    Defect(
        "left-locked-in-silence",
        "What a handler leaves locked is released at its end, and said.",
        [
            Edit(
                "framework/oncemq/handler/binding.py",
                "            for end, value in ends:\n                end(value)",
                "            pass",
            )
        ],
        [f"{HANDLERS}::test_what_a_plain_handler_leaves_locked_is_released_and_said[single-Lock]"],
    ),
    Defect(
        "lock-blocks-the-event-loop",
        "An async handler waits for no lock in the thread of its event loop, where another handler may have it.",
        [Edit(ARGUMENTS, "if isinstance(owner, Owner) and owner.on_loop:", "if False:")],
        [f"{HANDLERS}::test_an_async_handler_may_not_block_its_loop[single-Lock]"],
    ),
    Defect(
        "cancelled-acquisition-kept",
        "A coroutine that was cancelled while Redis gave it a lock or a permit gives it back.",
        [
            Edit(
                "strategies/oncemq_strategies/redisson/handlers/async_calls.py",
                "self.submit(lambda: undo(future.result()))",
                "pass",
            )
        ],
        [
            "tests/unit/strategies/redis/redisson/test_async.py::test_a_cancelled_acquisition_is_taken_back[single]"
        ],
    ),
)
