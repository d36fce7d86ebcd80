"""How well the tiers before the database do, counted in this process."""

import threading
from collections import Counter
from collections.abc import Mapping


class TierCounts:
    """Counts of messages; safe for any number of threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, **counts: int) -> None:
        """Count so many more of each."""
        with self._mutex:
            for name, count in counts.items():
                self._counts[name] += count

    def figures(self) -> Mapping[str, float]:
        """Return shares between 0 and 1; one of nothing is left out.

        - `false_positive_rate`: of the new identities, those that the filter took for seen.
        - `redis_hit_rate`: of the identities that Redis was asked about, those that were marked.
        - `database_conflict_rate`: of the identities that were inserted, those that were there.
        - `kept_off_database`: of the duplicates, those that never reached the database.
        """
        with self._mutex:
            counts = Counter(self._counts)
        shares = {
            "false_positive_rate": (counts["false_maybe"], counts["filtered_new"]),
            "redis_hit_rate": (counts["marked"], counts["asked"]),
            "database_conflict_rate": (counts["there"], counts["there"] + counts["new"]),
            "kept_off_database": (counts["kept_off"], counts["kept_off"] + counts["duplicates"]),
        }
        return {name: part / whole for name, (part, whole) in shares.items() if whole}
