"""Values that must never be shown: passwords, and URLs that may carry one."""

from collections.abc import Iterator
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit, urlunsplit

from oncemq.common.redaction import MASK, is_secret_name


class Secret:
    """A text that is shown only by `reveal`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself."""
        return self._text

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class SecretUrl(Secret):
    """A URL that is shown without its password."""

    __slots__ = ()

    @property
    def scheme(self) -> str:
        """Return the part before `://`, in lower case."""
        return self._text.partition("://")[0].lower()

    def __str__(self) -> str:
        return mask_url(self._text)


def mask_url(url: str) -> str:
    """Return `url` with its password and secret parameters masked; only its scheme if it cannot be parsed."""
    try:
        parts = urlsplit(url)
        address = parts.netloc.rpartition("@")
        user = address[0].partition(":")
    except ValueError:
        return f"{url.partition('://')[0]}://{MASK}"
    credentials = f"{user[0]}:{MASK}@" if user[1] else f"{address[0]}{address[1]}"
    masked = SplitResult(parts.scheme, credentials + address[2], parts.path, _mask_query(parts.query), "")
    return urlunsplit(masked) if parts.netloc else url.partition("?")[0]


def secrets_in_url(url: str) -> Iterator[str]:
    """Yield the parts of `url` that must not be shown, both as written and decoded."""
    try:
        parts = urlsplit(url)
        password = parts.netloc.rpartition("@")[0].partition(":")[2]
    except ValueError:
        yield url
        return
    values = [value for name, value in parse_qsl(parts.query) if is_secret_name(name)]
    for secret in (password, unquote(password), *values):
        if secret:
            yield secret


def _mask_query(query: str) -> str:
    pairs = (pair.partition("=") for pair in query.split("&") if pair)
    return "&".join(f"{name}{sign}{MASK if is_secret_name(name) else value}" for name, sign, value in pairs)
