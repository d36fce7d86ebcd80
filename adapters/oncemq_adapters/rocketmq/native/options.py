"""Options of a broker for librocketmq: where the library is, and how many messages may be in work."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from oncemq.errors import ConfigError
from oncemq_adapters.librocketmq.library import find
from oncemq_adapters.options import OptionReader
from oncemq_adapters.rocketmq.address import KNOWN, TLS

OWN = ("library", "threads")
_IMPOSSIBLE = {
    "addresses": "librocketmq goes to the addresses that brokers tell",
    "tls": "librocketmq speaks no TLS",
    "trace": "librocketmq tells no trace what became of a message",
    **dict.fromkeys(TLS, "librocketmq speaks no TLS"),
}


@dataclass(frozen=True, slots=True)
class NativeOptions:
    """The options that only this driver has.

    Args:
        library: the file of librocketmq; None = look for it.
        threads: of the library for each group: each waits until what was pulled at once is settled.
    """

    library: str | None
    threads: int

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """Return our options, and the rest, which is the same for every driver.

        Raises:
            ConfigError: one of ours cannot work, or one of the others cannot work here.
        """
        reader = OptionReader(options, (*KNOWN, *OWN), "RocketMQ broker option")
        for name, reason in _IMPOSSIBLE.items():
            if options.get(name):
                reader.complain(
                    name, f"{name} cannot be used with rocketmq+native://: {reason}", "use rocketmq://"
                )
        own = cls(reader.text("library"), reader.number("threads", 32, 1, 1024) or 32)
        reader.finish()
        return own, {name: value for name, value in options.items() if name not in OWN}

    def find(self) -> str:
        """Return where the library is.

        Raises:
            ConfigError: nowhere; says what to do.
        """
        try:
            return find(self.library, os.environ)
        except FileNotFoundError as error:
            raise ConfigError([str(error)]) from error
