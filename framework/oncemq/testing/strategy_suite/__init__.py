"""Suite that every chain of strategies must pass on every database.

Derive from `StrategySuite` or `DirectStrategySuite`, and provide a chain and a URL.
"""

import pytest

# Before the parts are imported: failed assertions then show the values they compared.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{part}"
        for part in ("concurrency", "crashes", "direct_crashes", "duplicates", "failures", "parking")
    )
)

from oncemq.testing.strategy_suite.chain_spec import ChainSpec  # noqa: E402
from oncemq.testing.strategy_suite.concurrency import Concurrency  # noqa: E402
from oncemq.testing.strategy_suite.crashes import Crashes  # noqa: E402
from oncemq.testing.strategy_suite.direct_crashes import DirectCrashes  # noqa: E402
from oncemq.testing.strategy_suite.duplicates import Duplicates  # noqa: E402
from oncemq.testing.strategy_suite.failures import Failures  # noqa: E402
from oncemq.testing.strategy_suite.parking import Parking  # noqa: E402


class StrategySuite(Duplicates, Failures, Concurrency, Crashes, Parking):
    """All parts, for effects in the database; override the fixtures `chain` and `url`."""


class DirectStrategySuite(Duplicates, Failures, Concurrency, DirectCrashes):
    """All parts, for effects outside: the chain is `direct`. Override the fixtures `chain` and `url`."""


__all__ = ["ChainSpec", "DirectStrategySuite", "StrategySuite"]
