"""Builds a consumer's reader from the declared key, version, identity, format and schema."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from oncemq.config.build.importing import import_object
from oncemq.config.build.shared_parts import Reporter
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.config.model.fields import WrongValue
from oncemq.handler.payload import Validate, make_validate
from oncemq.message.body_version import Check
from oncemq.message.claims.claim_check import ClaimCheck, ClaimReader
from oncemq.message.decoding import Decoder, Limits, make_decoder
from oncemq.message.envelope import Message
from oncemq.message.expressions import compile_expression
from oncemq.message.reader import Reader
from oncemq.message.routed_reader import RoutedReader, RouteReader

_EXPRESSIONS = frozenset({"key", "version", "identity"})


def build_reader(
    settled: ConsumerSettings,
    folder: Path,
    report: Reporter,
    claims: ClaimCheck | None = None,
    check: Check | None = None,
) -> Reader | None:
    """Return the consumer's reader, or None if a declaration cannot work; the reason is reported."""
    if settled.routes is None or not settled.by_route:
        return _reader(settled, folder, report, claims, check)
    # Which route a message has may be said in its body, so the schema comes after that.
    others = _route_reader(0, settled, settled, folder, report, claims, check)
    routes = {
        value: _route_reader(number, route, settled, folder, report, claims, check, value)
        for number, (value, route) in enumerate(settled.by_route.items(), 1)
    }
    found = {value: route for value, route in routes.items() if route is not None}
    if others is None or len(found) < len(routes):
        return None
    return RoutedReader(compile_expression(settled.routes.by), others, found)


def _route_reader(
    number: int,
    route: ConsumerSettings,
    settled: ConsumerSettings,
    folder: Path,
    report: Reporter,
    claims: ClaimCheck | None,
    check: Check | None,
    value: str = "",
) -> RouteReader | None:
    own = (route.key, route.version, route.identity) != (settled.key, settled.version, settled.identity)
    # With a key or identity of its own, no message of the route is a copy of another route's message.
    reader = _reader(replace(route, schema=None), folder, report, claims, check, value if own else "")
    validate = None
    if route.schema is not None:
        try:
            validate = _validation(route.schema, folder)
        except (WrongValue, TypeError, ValueError) as error:
            report.error(route.path("schema"), error)
            return None
    return RouteReader(number, reader, validate) if reader is not None else None


def _reader(
    settled: ConsumerSettings,
    folder: Path,
    report: Reporter,
    claims: ClaimCheck | None,
    check: Check | None,
    apart: str = "",
) -> Reader | None:
    if not settled.key:
        report.at(
            ("topics", settled.topic),
            f"topic {settled.topic!r} declares no key, and a key is never invented",
            "write key: and the field that names the business entity, like key: body.order_id",
        )
        return None
    decoder = _decoder(settled, folder, report, claims)
    if decoder is None:
        return None
    try:
        kind = Reader if claims is None else ClaimReader
        reader = kind(
            settled.broker,
            settled.topic,
            settled.group,
            key=settled.key,
            version=settled.version,
            identity=settled.identity,
            decoder=decoder,
            apart=apart,
            check=check,
        )
        return (
            reader.with_claims(claims) if isinstance(reader, ClaimReader) and claims is not None else reader
        )
    except ValueError as error:
        what, said = str(error).partition(":")[0], str(error)
    report.at(settled.path(what if what in _EXPRESSIONS else "key"), said)
    return None


def _decoder(
    settled: ConsumerSettings, folder: Path, report: Reporter, claims: ClaimCheck | None
) -> Decoder | None:
    try:
        return build_decoder(settled.format, settled.schema, folder, claims)
    except (WrongValue, TypeError) as error:
        report.error(settled.path("schema"), error)
    except ValueError as error:
        report.at(settled.path("format"), str(error))
    return None


def build_decoder(body_format: str, schema: Any, folder: Path, claims: ClaimCheck | None = None) -> Decoder:
    """Return the decoder of a format, which validates bodies if there is a schema.

    Raises:
        ValueError: the format is unknown.
        WrongValue, TypeError: the schema cannot validate bodies.
    """
    decoder = make_decoder(body_format, None if claims is None else Limits(body_bytes=claims.most))
    return decoder if schema is None else _validating(decoder, schema, folder)


def _validation(schema: Any, folder: Path) -> Validate | None:
    return make_validate(import_object(schema, folder) if isinstance(schema, str) else schema)


def _validating(decoder: Decoder, schema: Any, folder: Path) -> Decoder:
    """Validate every body; handlers still get the type of their own annotation."""
    validate = _validation(schema, folder)
    if validate is None:
        return decoder

    def decode(message: Message) -> Any:
        body = decoder(message)
        validate(body)
        return body

    return decode
