"""Where the judge finds no difference, there is none: random schemas and bodies, with a validator of JSON Schema as the oracle."""

import json
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from oncemq.schemas.judge import Judge

SCALARS = st.sampled_from([None, True, False, 0, 1, 2, 3.5, -1, "", "a", "ab", "b"])
BODIES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)
SMALL = st.integers(0, 2)


def _optional(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keywords)


def _one_of_types(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    kinds = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
    bounds = dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), SMALL)
    sizes = dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties"), SMALL)
    names = st.sampled_from("abc")
    keywords = _optional(
        type=kinds | st.lists(kinds, min_size=1, max_size=3, unique=True),
        properties=st.dictionaries(names, inner, max_size=2),
        required=st.lists(names, max_size=2, unique=True),
        additionalProperties=st.booleans() | inner,
        items=inner,
        prefixItems=st.lists(inner, min_size=1, max_size=2),
        uniqueItems=st.booleans(),
        multipleOf=st.sampled_from([0.5, 1, 2, 3]),
        pattern=st.sampled_from(["a", "^b"]),
        enum=st.lists(SCALARS, min_size=1, max_size=3),
        const=SCALARS,
        **bounds,
        **sizes,
    )
    unions = st.sampled_from(["anyOf", "oneOf", "allOf"])
    return keywords | st.builds(
        lambda name, parts: {name: parts}, unions, st.lists(inner, min_size=1, max_size=2)
    )


SCHEMAS = st.recursive(st.booleans() | _one_of_types(st.booleans()), _one_of_types, max_leaves=4)


def _changed(schema: Any, draw: Random) -> Any:
    """Return the schema with one keyword less, or another value of it, somewhere inside."""
    if not isinstance(schema, dict) or not schema:
        return draw.choice([True, schema])
    name = draw.choice(sorted(schema))
    value, rest = schema[name], {key: other for key, other in schema.items() if key != name}
    if draw.random() < 0.3:
        return rest
    if isinstance(value, bool):
        return rest | {name: not value}
    if isinstance(value, int | float):
        return rest | {name: max(1, value + draw.choice([-1, 1]))}
    if isinstance(value, list) and value:
        at = draw.randrange(len(value))
        return rest | {
            name: [*value[:at], _changed(value[at], draw), *value[at + 1 :]]
            if isinstance(value[at], dict)
            else value[at:]
        }
    if isinstance(value, dict) and name == "properties" and value:
        key = draw.choice(sorted(value))
        return rest | {name: value | {key: _changed(value[key], draw)}}
    return rest | {name: _changed(value, draw)} if isinstance(value, dict) and name != "properties" else rest


NEAR = st.builds(
    lambda schema, draw, turn: (schema, _changed(schema, draw))[:: 1 if turn else -1],
    SCHEMAS,
    st.randoms(use_true_random=False),
    st.booleans(),
)
PAIRS = st.tuples(SCHEMAS, SCHEMAS) | NEAR | NEAR


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(PAIRS, st.lists(BODIES, min_size=8, max_size=8))
def test_a_body_of_the_writer_is_a_body_of_the_reader(pair: tuple[Any, Any], bodies: list[Any]) -> None:
    """Without a difference, each body that the writer's schema allows is accepted by the reader's."""
    writer, reader = json.loads(json.dumps(pair))
    if Judge(writer, reader, ("v1", "v2")).differences():
        return
    allows, accepts = Draft202012Validator(writer), Draft202012Validator(reader)
    for body in bodies:
        assert not allows.is_valid(body) or accepts.is_valid(body), (writer, reader, body)
