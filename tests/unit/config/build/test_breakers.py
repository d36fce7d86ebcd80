"""Tests of `breakers:` as it is declared: short and long, inherited, refused and warned about."""

from datetime import timedelta
from pathlib import Path

import pytest

from oncemq.config import load
from oncemq.engine.breakers.rule import BreakerAction, BreakerKind, BreakerRule
from oncemq.errors import ConfigError
from support.declared import BASE, loaded, problems


def declared(breakers: str, defaults: str = "") -> str:
    """Return an app with these breakers."""
    text = BASE.replace("topic: orders,", f"topic: orders, breakers: {{{breakers}}},")
    return text + (f"defaults: {{breakers: {{{defaults}}}}}\n" if defaults else "")


def rules(folder: Path, breakers: str, defaults: str = "") -> tuple[BreakerRule, ...]:
    """Return the consumer's rules."""
    return loaded(folder, declared(breakers, defaults)).plan.consumers[0].breakers


def test_a_number_is_the_share(tmp_path: Path) -> None:
    """The rest is usual: it warns."""
    assert rules(tmp_path, "failures: 0.2") == (
        BreakerRule(BreakerKind.FAILURES, 0.2, timedelta(minutes=1), 100, BreakerAction.WARN),
    )


def test_each_option_can_be_written(tmp_path: Path) -> None:
    """As the page shows them."""
    written = "hot_key: {above: 0.3, window: 10s, minimum: 7, action: slow, open_for: 5m}"
    (found,) = rules(tmp_path, written)
    assert found == BreakerRule(
        BreakerKind.HOT_KEY,
        0.3,
        timedelta(seconds=10),
        7,
        BreakerAction.SLOW,
        timedelta(minutes=5),
    )


def test_the_defaults_hold_for_breakers_that_a_consumer_does_not_name(tmp_path: Path) -> None:
    """Of each kind the nearest one."""
    found = rules(tmp_path, "failures: 0.2", "failures: 0.9, duplicates: 0.5")
    assert {rule.kind.value: rule.above for rule in found} == {"failures": 0.2, "duplicates": 0.5}


def test_an_app_without_breakers_counts_nothing(tmp_path: Path) -> None:
    """They cost nothing unless they are wanted."""
    assert loaded(tmp_path, BASE).plan.breakers is None


@pytest.mark.parametrize(
    ("breakers", "text"),
    [
        ("failures: 2", "2 is out of range"),
        ("failures: often", "should be a number"),
        ("failures: {window: 10s}", "`above` is missing – write above: 0.5"),
        ("failures: {above: 0.2, action: stop}", "write warn or slow or pause"),
        ("failure: 0.2", "failure"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, breakers: str, text: str) -> None:
    """With its place, before anything runs."""
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, declared(breakers))
    assert text in str(caught.value)


def test_without_a_database_nothing_can_be_paused_everywhere(tmp_path: Path) -> None:
    """Said at start, and what to write instead."""
    text = declared("failures: {above: 0.2, action: pause}")
    found = problems(tmp_path, text.replace('database: {url: "sqlite://"}\n', ""))
    (line,) = [line for line in found if "breaker" in line]
    assert (
        "a breaker pauses a consumer through the app's database, and there is none – write action: slow"
        in line
    )


def test_without_records_there_are_no_duplicates(tmp_path: Path) -> None:
    """The breaker would never open, in silence."""
    (tmp_path / "handlers.py").write_text("def award(order: dict) -> None: ...\n")
    (tmp_path / "app.yaml").write_text(
        'app: shop\nbrokers: {main: {url: "embedded://orders.db"}}\ntopics: {orders: {key: body.id, strategies: [none]}}\n'
        'consumers: {count: {topic: orders, handler: "handlers:award", breakers: {duplicates: 0.5}}}\n'
    )
    found = [str(each) for each in load([tmp_path / "app.yaml"]).warnings]
    assert any("this breaker never opens: strategy none knows no duplicates" in each for each in found)
