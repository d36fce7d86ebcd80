"""Tests of `retry:` by exception as it is declared: what is imported, inherited, refused and warned about."""

from pathlib import Path

import pytest

from oncemq.errors import ConfigError
from oncemq.retry.backoff import RetryPolicy
from support.declared import BASE, loaded, problems


def policy(folder: Path, retry: str, defaults: str = "") -> RetryPolicy:
    """Return the consumer's policy."""
    return loaded(folder, declared(retry, defaults)).plan.consumers[0].retry


def declared(retry: str, defaults: str = "") -> str:
    """Return an app with these rules."""
    text = BASE.replace("topic: orders,", f"topic: orders, retry: {{{retry}}},")
    return text + (f"defaults: {{retry: {{{defaults}}}}}\n" if defaults else "")


def by_error(found: RetryPolicy) -> dict[str, tuple[int, int]]:
    """Return attempts and immediate tries by the class's name."""
    return {kind.__name__: (rule.attempts, rule.immediate) for kind, rule in found.by_error}


def test_rules_name_classes_in_every_usual_way(tmp_path: Path) -> None:
    """A built-in name, `module:Class` and `module.Class`; below `errors:` or directly."""
    retry = (
        'attempts: 4, immediate: 1, never: [ValueError, "decimal:InvalidOperation"], '
        '"concurrent.futures.CancelledError": {attempts: 20, immediate: 0}, errors: {OSError: {attempts: 9}}'
    )
    found = policy(tmp_path, retry)
    assert (found.attempts, found.immediate) == (4, 1)
    assert by_error(found) == {
        "ValueError": (1, 0),
        "InvalidOperation": (1, 0),
        "CancelledError": (20, 0),
        "OSError": (9, 1),
    }


def test_a_nearer_rule_for_a_class_wins(tmp_path: Path) -> None:
    """Rules of the defaults hold as well, except for classes that the consumer names."""
    found = policy(
        tmp_path,
        "OSError: {attempts: 9}",
        "attempts: 5, never: [OSError, KeyError], ValueError: {backoff: {first: 3s}}",
    )
    assert by_error(found) == {"OSError": (9, 0), "KeyError": (1, 0), "ValueError": (5, 0)}
    assert dict(found.by_error)[ValueError].first.total_seconds() == 3


@pytest.mark.parametrize(
    ("retry", "text"),
    [
        ("never: [NoSuchError]", "there is no built-in exception 'NoSuchError'"),
        ('never: ["decimal:InvalidOperatio"]', "did you mean 'InvalidOperation'?"),
        ('never: ["no_such_module_here:Error"]', "there is no module 'no_such_module_here'"),
        ('never: ["os:path"]', "is not a class of exceptions"),
        ("never: [3]", "should be text"),
        ("never: ValueError", "should be a list of names – put it into brackets: never: […]"),
        ("atempts: 3", "did you mean 'attempts'?"),
        ("OSError: {atempts: 3}", "did you mean 'attempts'?"),
        ("OSError: 3", "should be a mapping"),
        ("never: [OSError, IOError]", "there are two rules for OSError"),
        ("immediate: -1", "`immediate`"),
    ],
)
def test_a_wrong_rule_is_refused_in_words(tmp_path: Path, retry: str, text: str) -> None:
    """The app does not start, and the error has the line and what to write."""
    found = problems(tmp_path, declared(retry))
    assert [str(problem) for problem in found if text in str(problem) and ":7:" in str(problem)], found


@pytest.mark.parametrize(
    ("retry", "text"),
    [
        ('never: ["oncemq:Reject"]', "can never apply"),
        ("OSError: {attempts: 6}", "changes nothing"),
    ],
)
def test_a_useless_rule_is_warned_about(tmp_path: Path, retry: str, text: str) -> None:
    """An operator would rely on it."""
    assert any(text in str(warning) for warning in loaded(tmp_path, declared(retry)).warnings)


def test_records_are_kept_for_the_longest_retries(tmp_path: Path) -> None:
    """A rule that retries beyond `keep` is refused as the plain one is."""
    with pytest.raises(ConfigError, match="records are kept for 7d"):
        loaded(tmp_path, declared("OSError: {attempts: 2000}"))


def test_checks_at_the_broker_know_the_most_attempts(tmp_path: Path) -> None:
    """A broker's own limit must not end a message before its rule does."""
    assert loaded(tmp_path, declared("OSError: {attempts: 9}")).facts[0].attempts == 9


def test_the_header_in_which_producers_ask_is_inherited_by_rules(tmp_path: Path) -> None:
    """From the defaults, too; each rule bounds by its own attempts."""
    found = policy(tmp_path, "OSError: {attempts: 2}", "attempts_from: headers.x-tries")
    assert (found.asked_in, dict(found.by_error)[OSError].asked_in) == ("x-tries", "x-tries")


@pytest.mark.parametrize("wrong", ["attempts", "body.attempts", "headers.", "headers.a b", "3"])
def test_what_names_no_header_is_refused(tmp_path: Path, wrong: str) -> None:
    """Of a message that cannot be read only the headers are known."""
    text = declared(f'attempts_from: "{wrong}"')
    assert any("write headers. and its name" in problem for problem in map(str, problems(tmp_path, text)))
