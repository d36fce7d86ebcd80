"""Only one of the packages that import as `rocketmq` may be installed."""

import pytest

from oncemq.errors import ConfigError, MissingExtra
from oncemq_adapters.rocketmq.packages import require_package


def test_missing_package_is_answered_with_its_extra() -> None:
    """Without the package, the error is the line to install it."""
    with pytest.raises(MissingExtra, match=r"oncemq\[rocketmq-native\]"):
        require_package("rocketmq-client-python", lambda _: False)


@pytest.mark.parametrize("other", ["rocketmq", "rocketmq-python-client"])
def test_packages_of_one_name_are_refused_together(other: str) -> None:
    """Two that overwrite each other's files are refused, and the error says how to mend that."""
    with pytest.raises(ConfigError, match=f"{other}.*pip uninstall"):
        require_package("rocketmq-client-python", {"rocketmq-client-python", other}.__contains__)


def test_package_alone_is_fine() -> None:
    """The package alone is what is wanted."""
    require_package("rocketmq-client-python", {"rocketmq-client-python"}.__contains__)
