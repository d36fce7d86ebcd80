"""Tests of `claim_check:` as it is declared: defaults, sizes, and what is refused."""

from datetime import timedelta
from pathlib import Path

import pytest

from support.declared import BASE, loaded, problems


def declared(written: str, consumer: str = "") -> str:
    """Return an app whose topic has this claim check."""
    assert "orders: {" in BASE
    text = BASE.replace("orders: {", f"orders: {{claim_check: {written}, ", 1)
    return text.replace("topic: orders,", f"topic: orders,{consumer}")


def test_its_defaults(tmp_path: Path) -> None:
    """256 KiB, 64 MiB, and as long as records are kept."""
    plan = loaded(tmp_path, declared('{store: "memory://bodies"}', " keep: 30d,")).plan
    (claims,) = plan.claims
    assert (claims.over, claims.most, claims.keep) == (256 * 1024, 64 * 1024 * 1024, timedelta(days=30))
    assert plan.consumers[0].claims is claims
    assert plan.topics["orders"].claims is claims


def test_all_may_be_said(tmp_path: Path) -> None:
    """Sizes have a unit."""
    text = declared('{store: "memory://bodies", over: 1MiB, most: 2MiB, keep: 14d}')
    (claims,) = loaded(tmp_path, text).plan.claims
    assert (claims.over, claims.most, claims.keep) == (1024 * 1024, 2 * 1024 * 1024, timedelta(days=14))


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("{over: 1KiB}", "store"),
        ('{store: "memory://b", over: 1000}', "1000 has no unit"),
        ('{store: "memory://b", over: 1KB}', "'1KB' is not a size"),
        ('{store: "memory://b", most: 2000MiB}', "2000MiB is out of range"),
        ('{store: "memory://b", over: 2MiB, most: 1MiB}', "smaller than those that stay in their messages"),
        ('{store: "file://bodies"}', "depends on the folder in which a process starts"),
        ('{store: "memory://"}', "names no folder for bodies"),
        ('{store: "nowhere://b"}', "nowhere"),
        ('{store: "memory://b", ower: 1KiB}', "did you mean 'over'?"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, written: str, says: str) -> None:
    """At its place in the file."""
    (problem,) = problems(tmp_path, declared(written))
    assert says in str(problem)
    assert "app.yaml" in str(problem)
