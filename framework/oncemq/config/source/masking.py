"""Masks the secrets in the text of a configuration, and fills them in again from a text that has them.

Only values that are written in the text are masked: `${VAR}` shows nothing, and stays. What is masked follows from the text alone,
so that the same text is masked in the same way everywhere.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from oncemq.common.redaction import MASK, MaskedText, Redactor, is_secret_name
from oncemq.config.source.problems import Problems
from oncemq.config.source.read import read_tree
from oncemq.config.source.tree import Path as Place
from oncemq.config.source.yaml_text import parse_yaml
from oncemq.errors import ConfigError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_REFERENCES = re.compile(r"(?:\$\{[A-Za-z_][A-Za-z0-9_]*\})+")
_WORD = re.compile(r"\S+")
_USER = re.compile(r"://([^\s/:@]*):")
_PARAMETER = re.compile(r"(?<=[?&])(?P<name>[^=&?#\s]+)=(?P<value>[^&#\s]*)")
_COMMENT = re.compile(r"#[^\n]*")


@dataclass(frozen=True, slots=True)
class _Value:
    """A value where it is written.

    Args:
        path: of the value.
        text: it as it is written, with its quotes.
        start: where it begins in the file's text.
        end: where it ends.
        plain: it without quotes and escapes.
    """

    path: Place
    text: str
    start: int
    end: int
    plain: str


def masked(
    texts: Mapping[Path, bytes], environment: Mapping[str, str] | None = None
) -> tuple[MaskedText, ...]:
    """Return the texts of an app's files without secrets.

    Args:
        texts: of the files.
        environment: variables, whose secrets are masked wherever they are written out; None = none are known.
    """
    known = None if environment is None else _known(secrets_of(texts, environment))
    return tuple(_masked(file, text, known) for file, text in texts.items())


def version_of(texts: Mapping[Path, bytes]) -> str:
    """Return the name of a configuration's text, 12 hexadecimal digits: the same text has the same one everywhere.

    Values of secrets have no part in it: the ledger shows the rest of the text, so they could be guessed from it.
    """
    parts = [each.text.encode() for each in masked(texts)]
    return sha256(b"".join(b"%d:%b" % (len(part), part) for part in parts)).hexdigest()[:12]


def filled(
    former: Sequence[MaskedText], present: Mapping[Path, bytes], environment: Mapping[str, str]
) -> dict[Path, bytes]:
    """Return masked texts with the secrets that other texts have in the same places.

    Args:
        former: texts that were masked.
        present: the texts with the secrets, as many, in the same order.
        environment: variables.

    Raises:
        ConfigError: a place has no secret there; names it.
    """
    known = _known(secrets_of(present, environment))
    problems: list[str] = []
    whole: dict[Path, bytes] = {}
    for each, (file, data) in zip(former, present.items(), strict=True):
        try:
            values = {value.path: value for value in _values(data.decode("utf-8-sig"))}
        except (UnicodeDecodeError, yaml.YAMLError):
            values = {}
        text, missing = _with_secrets(each.text, values, known)
        whole[file] = text.encode()
        problems += [
            f"{file}: {'.'.join(map(str, place))} held a secret, which the history does not keep, and the file has none "
            f"there now – write the secret, or ${{A_VARIABLE}}, there first"
            for place in missing
        ]
    if problems:
        raise ConfigError(problems)
    return whole


def _with_secrets(
    former: str, present: Mapping[Place, "_Value"], known: re.Pattern[str] | None
) -> tuple[str, list[Place]]:
    pieces: list[str] = []
    missing: list[Place] = []
    at = 0
    for value in _values(former):
        if MASK in value.text:
            whole = _filled(value, present.get(value.path), known)
            if whole is None:
                missing.append(value.path)
            pieces += [former[at : value.start], whole or value.text]
            at = value.end
    return "".join([*pieces, former[at:]]), missing


def secrets_of(texts: Mapping[Path, bytes], environment: Mapping[str, str]) -> set[str]:
    """Return what must not be shown of an app, values of its environment included; nothing where no YAML can be read."""
    problems = Problems()
    with suppress(ConfigError):  # what is not YAML is masked by its looks
        if texts:  # an app in Python has none
            read_tree(list(texts), environment, problems, texts)
    return problems.secrets


def _masked(file: Path, data: bytes, known: re.Pattern[str] | None) -> MaskedText:
    try:
        parse_yaml(data, str(file))  # bounds its size and depth
        text = data.decode("utf-8-sig")
        spans = list(_spans(text))
    except (ConfigError, yaml.YAMLError):
        return MaskedText(str(file), _by_its_looks(data.decode(errors="replace"), known), exact=False)
    pieces: list[str] = []
    at = 0
    for value in spans:
        pieces += [_comments(text[at : value.start], known), _shown(value, known)]
        at = value.end
    return MaskedText(str(file), "".join([*pieces, _comments(text[at:], known)]), exact=True)


def _by_its_looks(text: str, known: re.Pattern[str] | None) -> str:
    shown = Redactor()(text)
    return shown if known is None else known.sub(MASK, shown)


def _comments(text: str, known: re.Pattern[str] | None) -> str:
    """Return what stands between two values; only its comments may hold a secret."""
    return _COMMENT.sub(lambda found: _by_its_looks(found[0], known), text) if "#" in text else text


def _shown(value: _Value, known: re.Pattern[str] | None) -> str:
    if _is_named_secret(value.path):
        return value.text if _shows_nothing(value.plain) else f"'{MASK}'{_line_break(value.text)}"
    text = value.text
    if "://" in text:
        text = _with_credentials(_PARAMETER.sub(_hide_parameter, text), _hide)
    return text if known is None else known.sub(MASK, text)


def _hide(user: str, password: str) -> str:
    return f"{user}:{password if _shows_nothing(password) else MASK}"


def _with_credentials(text: str, replaced: Callable[[str, str], str]) -> str:
    """Return a text whose URLs have other credentials; in time that grows with its length."""

    def word(found: re.Match[str]) -> str:
        # Up to the last @ of the word: a password that is not percent-encoded may contain any other character.
        before, at, behind = found[0].rpartition("@")
        start = _USER.search(before)
        if not at or start is None:
            return found[0]
        return f"{before[: start.start(1)]}{replaced(start[1], before[start.end() :])}@{behind}"

    return _WORD.sub(word, text)


def _hide_parameter(found: re.Match[str]) -> str:
    hidden = is_secret_name(found["name"]) and not _shows_nothing(found["value"].strip("'\""))
    quote = found["value"][-1:] if found["value"][-1:] in {"'", '"'} else ""
    return f"{found['name']}={MASK}{quote}" if hidden else found[0]


def _shows_nothing(value: str) -> bool:
    return not value or _REFERENCES.fullmatch(value) is not None


def _is_named_secret(path: Place) -> bool:
    # Below brokers, topics and consumers the second step is a name chosen by the user.
    named = path[1:] if path and path[0] in {"database", "redis"} else path[2:]
    return any(isinstance(step, str) and is_secret_name(step) for step in named)


def _filled(former: _Value, present: _Value | None, known: re.Pattern[str] | None) -> str | None:
    """Return a value with its secrets, as it is to be written; None if they are not known."""
    if present is None:
        return None
    if _is_named_secret(former.path) or _shown(present, known) == former.text:
        return present.text.rstrip() + _line_break(former.text)
    secrets = _parts(present.text)

    def fill(user: str, password: str) -> str:
        user = secrets.get("@", MASK) if user == MASK else user
        return f"{user}:{secrets.get(':', MASK) if password == MASK else password}"

    def fill_parameter(found: re.Match[str]) -> str:
        return found[0].replace(MASK, secrets.get(found["name"], MASK))

    text = _PARAMETER.sub(fill_parameter, _with_credentials(former.text, fill))
    return None if MASK in text else text


def _parts(text: str) -> dict[str, str]:
    """Return the parts of a URL by their names; the password's is `:`, the user's `@`."""
    found = {each["name"]: each["value"].strip("'\"") for each in _PARAMETER.finditer(text)}

    def note(user: str, password: str) -> str:
        found.update({"@": user, ":": password})
        return ""

    _with_credentials(text, note)
    return found


def _line_break(text: str) -> str:
    """Return what ends a value that is a block."""
    return text[len(text.rstrip()) :]


def _known(secrets: Iterable[str]) -> re.Pattern[str] | None:
    """Return what finds secrets that stand alone: a password `postgres` must not mask `postgresql`."""
    words = sorted(secrets, key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)") if words else None


def _values(text: str) -> Iterator[_Value]:
    return (value for value in _spans(text) if value.path)


def _spans(text: str) -> Iterator[_Value]:
    """Yield keys, whose path is empty, and values, in the order of the text."""
    walk: list[tuple[Place, Any]] = [((), yaml.compose(text, Loader=_Loader))]
    while walk:
        path, node = walk.pop()
        if isinstance(node, yaml.MappingNode):
            inside: Sequence[tuple[Place, Any]] = [
                pair for key, value in node.value for pair in (((), key), ((*path, str(key.value)), value))
            ]
            walk.extend(reversed(inside))
        elif isinstance(node, yaml.SequenceNode):
            walk.extend(reversed([((*path, number), each) for number, each in enumerate(node.value)]))
        elif node is not None:
            start, end = node.start_mark.index, node.end_mark.index
            yield _Value(path, text[start:end], start, end, node.value)
