"""The last RocketMQ 4: no timer wheel, no proxy, and accounts in a file."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from services.servers import rocketmq_jars
from services.servers.rocketmq import RocketMQBroker

_LOG = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%d %-5level %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="file"/></root>
</configuration>
"""
_NEWER = (
    "timer",
    "authentication",
    "authorization",
    "initAuthentication",
    "innerClientAuthentication",
    "bindAddress",
)


class RocketMQ4(RocketMQBroker):
    """One name server and one broker. They listen on every address: they know no other way."""

    kind: ClassVar[str] = "rocketmq-4"
    version: ClassVar[str] = rocketmq_jars.VERSION_4
    user: ClassVar[str] = "oncemq-four"
    """It takes no name of less than seven letters."""
    port_names: ClassVar[Sequence[str]] = ("namesrv", "broker", "ha")

    @property
    def urls(self) -> Mapping[str, str]:
        """The URLs of both ways to speak to it."""
        return {
            self.variable: self.url,
            f"{self.variable}_NATIVE": self.url.replace("rocketmq", "rocketmq+native", 1),
        }

    def prepare(self) -> None:
        """Write the configuration, which is where this version looks for it."""
        super().prepare()
        for name in ("namesrv", "broker", "tools"):
            log = _LOG.format(file=self.data / f"{name}.log")
            self.account.write(self.data / "conf" / f"logback_{name}.xml", log)
        account = f"- accessKey: {self.user}\n  secretKey: {self.settings.password}\n  admin: true\n"
        self.account.write(self.data / "conf" / "plain_acl.yml", f"accounts:\n{account}")

    def _name_server(self, twin: str) -> Mapping[str, object]:
        return _older(super()._name_server(twin))

    def _broker(self, twin: str) -> Mapping[str, object]:
        return _older(super()._broker(twin)) | {"aclEnable": "true"}


def _older(settings: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in settings.items() if not name.startswith(_NEWER)}
