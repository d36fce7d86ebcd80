"""Reads recorded messages as the new configuration declares them: from recorded bodies, else from what the old one had read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.errors import ConfigError
from oncemq.message.envelope import Envelope, Message, make_envelope, make_message
from oncemq.message.identity import canonical_version
from oncemq.message.reader import Reader
from oncemq.rehearsal.recording_file import NO_BODY, Recording
from oncemq.rehearsal.stories import Story

INDEX: Final = "x-oncemq-story"
"""Header of a rehearsed message: its number in the recording."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a consumer's messages mean.

    Args:
        key: the key's expression.
        version: the version's expression; empty without one.
        identity: the identity's expressions, `key` and `version` replaced by theirs.
    """

    key: str
    version: str
    identity: tuple[str, ...]

    @classmethod
    def of(cls, key: str, version: str | None, identity: Sequence[str]) -> "Meaning":
        """Return it for what a topic or consumer declares."""
        parts = tuple(identity) or (("key", "version") if version else ("key",))
        named = {"key": key, "version": version or ""}
        return cls(
            key.strip(), (version or "").strip(), tuple(named.get(part, part).strip() for part in parts)
        )


def recorded_meaning(recording: Recording) -> Meaning:
    """Return what messages meant when they were recorded."""
    declared = recording.header["declared"]
    return Meaning.of(declared.get("key", ""), declared.get("version"), declared.get("identity") or ())


def meaning_of(settled: ConsumerSettings) -> Meaning:
    """Return what messages mean in the new configuration."""
    return Meaning.of(settled.key, settled.version, settled.identity)


class RecordedReader(Reader):
    """Reads rehearsed messages; what the old configuration read in the same way is taken as it was recorded.

    Args:
        settled: of the new configuration.
        stories: by the numbers in the messages.
        recording: what they are from.

    Raises:
        ValueError: an expression is wrong; says which and why.
    """

    __slots__ = ("_same", "_settled", "_stories")

    def __init__(self, settled: ConsumerSettings, stories: Sequence[Story], recording: Recording) -> None:
        before, now = recorded_meaning(recording), meaning_of(settled)
        names = {now.version: "version", now.key: "key"}
        super().__init__(
            settled.broker,
            settled.topic,
            settled.group,
            key=settled.key,
            version=settled.version,
            identity=[names.get(part, part) for part in now.identity],
            decoder=decoder_of(stories),
        )
        self._settled = settled
        self._stories = stories
        self._same = (before.key == now.key, before.version == now.version, before.identity == now.identity)

    @property
    def keeps_keys(self) -> bool:
        """Whether keys are taken as they were recorded."""
        return self._same[0]

    def read(self, message: Message) -> tuple[Envelope, Any]:
        """Return the envelope, and the recorded body.

        Raises:
            MessageRefused: the message does not match the new declaration.
        """
        story, settled = self._stories[int(message.headers[INDEX])].first, self._settled
        body = None if story.body is NO_BODY else story.body
        same_key, same_version, same_identity = self._same
        key = story.key if same_key else self._key(message, body)
        version = story.version
        if not same_version:
            version = None
            if self._version is not None:
                version = canonical_version(self._version(message, body), self._version_source)
        identity = story.identity if same_identity else self._identify(message, body, key, version)
        return make_envelope(
            settled.broker, settled.topic, settled.group, key, version, identity, message
        ), body


def decoder_of(stories: Sequence[Story]) -> Any:
    """Return a decoder of rehearsed messages, for the reader of the new configuration."""

    def decode(message: Message) -> Any:
        body = stories[int(message.headers[INDEX])].first.body
        return None if body is NO_BODY else body

    return decode


def message_of(number: int, story: Story, topic: str) -> Message:
    """Return the message that is delivered in the rehearsal."""
    first = story.first
    return make_message(
        topic,
        b"",
        message_id=first.message_id or None,
        headers={**first.headers, INDEX: str(number)},
        keys=first.keys or ((first.key,) if first.key else ()),
        attempt=1,
        redelivered=False,
        published_at=None if first.published is None else datetime.fromtimestamp(first.published, UTC),
        first_failed_at=None,
    )


def require_bodies(recording: Recording, settled: ConsumerSettings, expressions: Mapping[str, str]) -> None:
    """Check that the recording has what the new configuration reads.

    Args:
        recording: the recording.
        settled: of the new configuration.
        expressions: those of its strategies, by what they are for.

    Raises:
        ConfigError: it has not; says what, and how to record it.
    """
    before, now = recorded_meaning(recording), meaning_of(settled)
    read = dict(expressions)
    if before.key != now.key:
        read["key"] = now.key
    if before.version != now.version:
        read["version"] = now.version
    if before.identity != now.identity:
        known = {before.key if before.key == now.key else "", before.version}
        read |= {f"identity {part}": part for part in now.identity if part not in known}
    lacking = {what: text for what, text in read.items() if not _recorded(recording, text)}
    if lacking:
        raise ConfigError([_lacking(what, text) for what, text in lacking.items()])


def _lacking(what: str, text: str) -> str:
    advice = f"--header {text.partition('headers.')[2]}" if "headers." in text else "--bodies"
    names = re.findall(r"body\.([\w.-]+)", text)
    if names:
        advice += ", or with " + " ".join(f"--field {name}" for name in names)
    return f"{what} reads {text}, which the recording does not have – record again with {advice}"


def _recorded(recording: Recording, text: str) -> bool:
    """Whether what an expression names was recorded; with whole bodies, whatever it names in them."""
    header = recording.header
    headers = {str(name).lower() for name in header.get("headers") or ()}
    if any(name.lower() not in headers for name in re.findall(r"headers\.([\w-]+)", text)):
        return False
    if "body" not in text or header.get("bodies"):
        return True
    fields = header.get("fields") or ()
    named = re.findall(r"body\.([\w.-]+)", text)
    return bool(named) and all(
        any(name == each or name.startswith(f"{each}.") for each in fields) for name in named
    )
