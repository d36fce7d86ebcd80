"""Keys and channels that Redisson uses beside a lock's or a filter's own key."""

from collections.abc import Callable

from oncemq.errors import OnceMQError
from oncemq.redis.routes import slot_of

MAX_NAME = 512


class BadLockName(OnceMQError):
    """The name is not valid for a lock."""


class BadFilterName(OnceMQError):
    """The name is not valid for a Bloom filter."""


def beside(prefix: str, name: str) -> str:
    """Return the name of a lock's helper key, in the lock's slot; the lock's name may have its own `{tag}`."""
    return f"{prefix}:{name}" if "{" in name else f"{prefix}:{{{name}}}"


def below(name: str, suffix: str) -> str:
    """Return the name of a helper key that Redisson derives by a suffix, in the slot of `name`."""
    return f"{name}:{suffix}" if "{" in name else f"{{{name}}}:{suffix}"


def settings_of(name: str) -> str:
    """Return the hash with a Bloom filter's settings."""
    return below(name, "config")


def channel_of(name: str) -> str:
    """Return the channel in which the release of a lock is published."""
    return beside("redisson_lock__channel", name)


def read_write_channel_of(name: str) -> str:
    """Return the channel in which releases of a read-write lock are published."""
    return beside("redisson_rwlock", name)


def semaphore_channel_of(name: str) -> str:
    """Return the channel in which the release of permits is published."""
    return beside("redisson_sc", name)


def token_of(name: str) -> str:
    """Return the counter of a fenced lock's tokens."""
    return beside("redisson_lock_token", name)


def queue_of(name: str) -> str:
    """Return the list of a fair lock's waiters, the first one first."""
    return beside("redisson_lock_queue", name)


def timeouts_of(name: str) -> str:
    """Return the sorted set with the times until which a fair lock's waiters keep their places."""
    return beside("redisson_lock_timeout", name)


def check_name(name: str, *, clustered: bool) -> str:
    """Return `name` if it is valid for a lock.

    Raises:
        BadLockName: it is empty, too long, or its helpers would live in other slots of the cluster.
    """
    why = _unfit(name, "a lock", channel_of, clustered=clustered)
    if why is not None:
        raise BadLockName(why)
    return name


def check_filter_name(name: str, *, clustered: bool) -> str:
    """Return `name` if it is valid for a Bloom filter.

    Raises:
        BadFilterName: it is empty, too long, or its settings would live in another slot of the cluster.
    """
    why = _unfit(name, "a filter", settings_of, clustered=clustered)
    if why is not None:
        raise BadFilterName(why)
    return name


def _unfit(name: str, what: str, beside_it: Callable[[str], str], *, clustered: bool) -> str | None:
    """Return why the name is not valid; None if it is."""
    if not name or len(name) > MAX_NAME or "\0" in name:
        return f"{name[:60]!r} cannot name {what}: write 1 to {MAX_NAME} characters, none of them NUL"
    if clustered and slot_of(name) != slot_of(beside_it(name)):
        return (
            f"{name[:60]!r} cannot name {what} in a cluster: its braces put what belongs to it on another server; "
            "use none, or one {tag} that is not empty"
        )
    return None
