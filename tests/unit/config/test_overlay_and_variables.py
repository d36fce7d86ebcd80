"""Several files as one, and variables inside values."""

import pytest

from oncemq.config.source.problems import Problems
from oncemq.config.source.read import overlay
from oncemq.config.source.tree import plain
from oncemq.config.source.variables import expand
from oncemq.config.source.yaml_text import parse_yaml
from support.declared import BASE, loaded, problems


def laid(base: str, upper: str):
    """Return the tree of `base` with `upper` over it."""
    return overlay(parse_yaml(base.encode(), "base.yaml"), parse_yaml(upper.encode(), "upper.yaml"))


def expanded(text: str, **environment: str):
    """Return what the text means with its variables, and what is wrong."""
    tree, found = parse_yaml(text.encode(), "app.yaml"), Problems()
    expand(tree, environment, found)
    return plain(tree), [str(problem) for problem in found.found]


def test_mappings_merge_deeply():
    """An overlay adds to and changes mappings at any depth."""
    assert plain(laid("a: {b: {c: 1, d: 2}}", "a: {b: {d: 3, e: 4}}")) == {
        "a": {"b": {"c": 1, "d": 3, "e": 4}}
    }


def test_lists_replace():
    """A list of an overlay is the whole list."""
    assert plain(laid("a: [1, 2]", "a: [3]")) == {"a": [3]}


def test_null_takes_away():
    """`name: null` in an overlay removes what the base declares."""
    assert plain(laid("a: {b: 1, c: 2}", "a: {b: null}")) == {"a": {"c": 2}}


def test_positions_follow_the_winning_file(tmp_path):
    """A mistake in an overlay is told at the overlay's line."""
    said = problems(tmp_path, BASE, "consumers:\n  count:\n    workers: many\n")
    assert said == [
        "overlay0.yaml:3:14: `workers`: should be a whole number, but is text – write auto or a whole number from 1"
    ]


def test_a_name_of_an_overlay_stands_where_it_was_written(tmp_path):
    """An unknown name in an overlay is told at its own place, not at the base's mapping."""
    said = problems(tmp_path, BASE, "consumers:\n  count:\n    worker: 3\n")
    assert said == ["overlay0.yaml:3:5: unknown name 'worker' – did you mean 'workers'?"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("${A}", "one"),
        ("x-${A}-${B}", "x-one-two"),
        ("${MISSING:-other}", "other"),
        ("${EMPTY:-other}", "other"),
        ("${EMPTY}", ""),
        ("${MISSING:-}", ""),
        ("$${A}", "${A}"),
        ("$A", "$A"),
        ("'${A}'", "one"),
    ],
)
def test_variables_are_expanded_inside_values(written, meant):
    """References become the environment's values or their defaults; `$${` is a plain `${`."""
    assert expanded(f"a: {written}", A="one", B="two", EMPTY="") == ({"a": meant}, [])


def test_a_value_of_a_variable_is_never_yaml():
    """What a variable holds cannot add keys or lists."""
    assert expanded("a: ${A}", A="x: 1\n- y") == ({"a": "x: 1\n- y"}, [])


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            "${NOPE}",
            "app.yaml:1:4: the environment variable NOPE is not set – set it, or write ${NOPE:-default}",
        ),
        (
            "${A B}",
            "app.yaml:1:4: a `${` that is not a variable – write ${NAME} or ${NAME:-default}, and $${ where ${ itself is meant",
        ),
        (
            "x${A",
            "app.yaml:1:4: a `${` that is not a variable – write ${NAME} or ${NAME:-default}, and $${ where ${ itself is meant",
        ),
    ],
)
def test_references_that_lead_nowhere_are_problems(written, said):
    """A missing variable or a broken reference says where it stands and what to write."""
    assert expanded(f"a: {written}")[1] == [said]


def test_numbers_may_come_from_variables(tmp_path):
    """A field that wants a number takes one from the environment."""
    app = loaded(tmp_path, BASE + "processes: ${N:-3}\n")
    assert app.model.processes == 3


def test_a_number_in_a_variable_stays_text_where_text_is_wanted(tmp_path):
    """A password of digits is a text, leading zeros and all."""
    text = BASE.replace('"scripted://host"', '"scripted://host", password: "${P}"')
    app = loaded(tmp_path, text, environment={"P": "007"})
    assert app.model.brokers["main"].password.reveal() == "007"


def test_options_get_the_scalar_that_an_unquoted_variable_holds(tmp_path):
    """A strategy sees a number where the file would have held one, and text where it was quoted."""
    chain = "\n    strategies:\n      - decide:\n          limit: '${N}'\n          size: ${N}"
    text = BASE.replace("{key: body.id, strategies: [decide]}", "\n    key: body.id" + chain)
    app = loaded(tmp_path, text, environment={"N": "5"})
    assert app.plan.consumers[0].strategies[0].options == {"limit": "5", "size": 5}


def test_one_missing_variable_is_one_problem(tmp_path):
    """That the value's place is empty follows from the missing variable and is not told again."""
    said = problems(tmp_path, BASE.replace("scripted://host", "${URL}"))
    assert said == [
        "app.yaml:2:23: the environment variable URL is not set – set it, or write ${URL:-default}"
    ]
