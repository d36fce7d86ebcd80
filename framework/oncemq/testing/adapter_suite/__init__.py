"""Suite that every broker adapter must pass: derive from `AdapterSuite` and provide a harness."""

import pytest

# Before the parts are imported: failed assertions then show the values they compared.
_PARTS = (
    "bench",
    "dead_letters",
    "delivering",
    "lifecycle",
    "losing",
    "outages",
    "publishing",
    "retrying",
    "settling",
)
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from oncemq.testing.adapter_suite.dead_letters import DeadLetters  # noqa: E402
from oncemq.testing.adapter_suite.delivering import Delivering  # noqa: E402
from oncemq.testing.adapter_suite.harness import AdapterHarness, Topic  # noqa: E402
from oncemq.testing.adapter_suite.lifecycle import Lifecycle  # noqa: E402
from oncemq.testing.adapter_suite.losing import Losing  # noqa: E402
from oncemq.testing.adapter_suite.outages import Outages  # noqa: E402
from oncemq.testing.adapter_suite.publishing import Publishing  # noqa: E402
from oncemq.testing.adapter_suite.retrying import Retrying  # noqa: E402
from oncemq.testing.adapter_suite.settling import Settling  # noqa: E402


class AdapterSuite(Delivering, Settling, Retrying, DeadLetters, Publishing, Lifecycle, Losing, Outages):
    """All parts; override the fixture `harness`."""


__all__ = ["AdapterHarness", "AdapterSuite", "DeadLetters", "Delivering", "Publishing", "Retrying", "Topic"]
