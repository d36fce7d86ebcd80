"""The suite that every broker adapter must pass: derive from `AdapterSuite` and bring a harness."""

import pytest

# Before the parts are imported: failed assertions then show the values they compared.
_PARTS = ("bench", "delivering", "retrying", "settling")
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from oncemq.testing.adapter_suite.delivering import Delivering  # noqa: E402
from oncemq.testing.adapter_suite.harness import AdapterHarness, Topic  # noqa: E402
from oncemq.testing.adapter_suite.retrying import Retrying  # noqa: E402
from oncemq.testing.adapter_suite.settling import Settling  # noqa: E402


class AdapterSuite(Delivering, Settling, Retrying):
    """All parts; override the fixture `harness`."""


__all__ = ["AdapterHarness", "AdapterSuite", "Topic"]
