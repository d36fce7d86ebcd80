"""Parts of an HTTP request that make it idempotent: its key, its identity, its fingerprint."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from oncemq.errors import InvalidKey, RequestKeyInvalid
from oncemq.ledger.sql.tables import KEY_SIZE
from oncemq.message.canonical import canonical, canonical_json
from oncemq.message.identity import escape_part

HEADER = "idempotency-key"
LONGEST_KEY = 255
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"\s*(?:;.*)?')
"""A String of RFC 8941, section 3.3.3, and its parameters, which are ignored."""
_BARE = re.compile(r"""[!#-'*+\-./0-9A-Z^_`a-z|~:=@$%&]+""")
"""Most clients send this: the draft requires quotes, and we do not insist."""


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request, the same for WSGI and ASGI.

    Args:
        method: in capitals, such as POST.
        path: decoded, from the server's root.
        query: as it was sent, without the question mark.
        headers: by name in lower case.
        body: all of it; empty while only the head is known.
        native: the WSGI environ or the ASGI scope, where other middleware stores its data.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""
    native: Mapping[str, Any] = field(default_factory=dict, repr=False)


def key_of(request: Request) -> str | None:
    """Return the request's key; None if it has none.

    Raises:
        RequestKeyInvalid: its header is not a valid key.
    """
    sent = request.headers.get(HEADER)
    if sent is None:
        return None
    text = sent.strip()
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        key = re.sub(r'\\(["\\])', r"\1", quoted[1])
    elif _BARE.fullmatch(text):
        key = text
    else:
        raise RequestKeyInvalid(
            'the key is not a text in quotes: send one such as "8e03978e-40d5-43dd-bc93-6894a57f9324"'
        )
    if not 0 < len(key) <= LONGEST_KEY:
        raise RequestKeyInvalid(f"the key has {len(key)} characters: send 1 to {LONGEST_KEY}")
    return key


def identity_of(parts: Sequence[str]) -> str:
    """Return one text for several parts; different parts give different texts, long ones a digest.

    Raises:
        InvalidKey: a part is empty or holds a NUL character.
    """
    if not all(parts) or any("\0" in part for part in parts):
        raise InvalidKey("a part of the request's identity is empty or holds a NUL character")
    text = ":".join(map(escape_part, parts))
    encoded = text.encode(errors="surrogateescape")
    # A digest has no colon, a joined identity always does.
    return (
        text
        if len(encoded) <= KEY_SIZE and text.isprintable()
        else blake2b(encoded, digest_size=32).hexdigest()
    )


def fingerprint_of(request: Request) -> str:
    """Return the content of the request as text: method, path, query, content type and body; JSON by its value."""
    if not _is_json(request):
        return plain_fingerprint_of(request)
    try:
        body = canonical_json(request.body)
    except ValueError:
        return plain_fingerprint_of(request)
    return canonical([request.method, request.path, request.query, _kind(request)]) + body


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_json(request: Request) -> bool:
    kind = _kind(request)
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def plain_fingerprint_of(request: Request) -> str:
    """Return a digest of method, path, query, content type and every byte of the body."""
    digest = blake2b(digest_size=32)
    for part in (request.method, request.path, request.query, _kind(request)):
        digest.update(f"{len(part)}:{part}".encode(errors="surrogateescape"))
    digest.update(request.body)
    return digest.hexdigest()


def digest_of(content: bytes) -> str:
    """Return the digest of a fingerprint's own content."""
    return blake2b(content, digest_size=32).hexdigest()
