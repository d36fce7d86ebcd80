"""Old public names work for one more release, and warn."""

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("oncemq.requests", "oncemq.idempotent_requests", "RequestLedger"),
        ("oncemq_strategies.redis", "oncemq_strategies.redisson", "Lock"),
        ("oncemq.adapter", "oncemq.contracts.adapter", "Adapter"),
        ("oncemq.capabilities", "oncemq.contracts.capabilities", "Capabilities"),
        ("oncemq.facts", "oncemq.contracts.checks", "Problem"),
        ("oncemq.strategy", "oncemq.contracts.strategy", "Strategy"),
        ("oncemq.unit", "oncemq.contracts.unit", "Item"),
        ("oncemq.verdict", "oncemq.contracts.verdict", "Verdict"),
    ],
)
def test_an_old_module_gives_what_the_new_one_has_and_warns(old: str, new: str, name: str) -> None:
    """Code that was written before the move runs, and is told the new name."""
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        found = getattr(import_module(old), name)
    assert found is getattr(import_module(new), name)


@pytest.mark.parametrize(
    ("old", "new"),
    [("Later", "RetryRequest"), ("Dead", "DeadLetterRequest"), ("Burial", "ParkedDeadLetter")],
)
def test_an_old_name_of_the_adapter_contract_is_the_new_class(old: str, new: str) -> None:
    """Classes that were renamed with the move are found by their old names, too."""
    with pytest.warns(DeprecationWarning, match="oncemq.adapter is now"):
        found = getattr(import_module("oncemq.adapter"), old)
    assert found is getattr(import_module("oncemq.contracts.adapter"), new)


def test_an_old_module_does_not_invent_names() -> None:
    """What the new module does not have is an AttributeError."""
    with (
        pytest.warns(DeprecationWarning, match="oncemq.requests is now"),
        pytest.raises(AttributeError, match="Nothing"),
    ):
        import_module("oncemq.requests").Nothing  # noqa: B018
