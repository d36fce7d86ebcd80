"""RocketMQ: name server, broker and proxy, set up small and asked over its remoting protocol."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from services import ports
from services.account import Account
from services.errors import ServiceError
from services.ports import LOOPBACK
from services.process import Launch
from services.protocols import remoting
from services.server import Server
from services.servers import rocketmq_jars

NAME_SERVER, BROKER = "namesrv", "broker"
OPEN = [
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
]
# A developer's disk is full more often than a broker's.
DISK = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.98",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.97",
)


class RocketMQ(Server):
    """One name server, and one broker inside a proxy that serves both the remoting and the gRPC protocol."""

    kind: ClassVar[str] = "rocketmq"
    variable: ClassVar[str] = "ONCEMQ_TEST_ROCKETMQ"
    packages: ClassVar[Sequence[str]] = ("default-jre-headless", "maven")
    port_names: ClassVar[Sequence[str]] = ("namesrv", "broker", "ha", "grpc", "proxy")
    users: ClassVar[Sequence[str]] = ()
    start_seconds: ClassVar[float] = 180
    # A broker tells clients its own address, which is another one outside of the container.
    in_container: ClassVar[bool] = False
    proxied: ClassVar[bool] = True
    version: ClassVar[str] = rocketmq_jars.VERSION
    user: ClassVar[str] = "oncemq"
    twins: ClassVar[Sequence[str]] = ("",)
    """Name servers and brokers, by the ends of their names."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # Java minds no root, and must read the jars wherever the checkout stands.
        self.account = Account.ourselves()

    @classmethod
    def installed(cls) -> bool:
        """Return whether Java is there, and the jars or a Maven to fetch them."""
        return rocketmq_jars.available(rocketmq_jars.place_of(cls.version))

    @property
    def url(self) -> str:
        """The name server's URL, with the account that the broker knows."""
        return f"rocketmq://{self.user}:{self.settings.password}@{LOOPBACK}:{self.port}"

    @property
    def urls(self) -> Mapping[str, str]:
        """The URLs for the three ways to speak to it."""
        login = f"{self.user}:{self.settings.password}@{LOOPBACK}"
        return {
            self.variable: self.url,
            f"{self.variable}_NATIVE": f"rocketmq+native://{login}:{self.port}",
            f"{self.variable}_GRPC": f"rocketmq+grpc://{login}:{self.settings.ports['grpc']}",
        }

    def answers(self) -> bool:
        """Return whether the broker has registered and listens, and the proxy too."""
        wanted = [f"{BROKER}{twin}" for twin in self.twins] + (["grpc"] if self.proxied else [])
        names = [self.settings.ports[f"{NAME_SERVER}{twin}"] for twin in self.twins]
        return all(remoting.brokers(port, count=len(self.twins)) for port in names) and all(
            ports.accepts(self.settings.ports[name]) for name in wanted
        )

    def prepare(self) -> None:
        """Fetch the jars where they are missing, and write the configuration."""
        rocketmq_jars.class_path(self.version)
        data = self.data
        for twin in self.twins:
            self.account.write(data / f"{NAME_SERVER}{twin}.conf", _lines(self._name_server(twin)))
            self.account.write(data / f"{BROKER}{twin}.conf", _lines(self._broker(twin)))
        if self.proxied:
            self.account.write(data / "proxy.json", json.dumps(self._proxy(), indent=1))
        tools = data / "conf" / "tools.yml"
        tools.parent.mkdir(exist_ok=True)
        self.account.write(tools, f"accessKey: {self.user}\nsecretKey: {self.settings.password}\n")

    def launches(self) -> Sequence[Launch]:
        """Return the name servers, then the brokers: alone, or inside their proxy."""
        return [
            *(self._launch_name_server(twin) for twin in self.twins),
            *(self._launch_broker(twin) for twin in self.twins),
        ]

    def _launch_name_server(self, twin: str) -> Launch:
        name = f"{NAME_SERVER}{twin}"
        java = self._java("namesrv", "-Xms64m", "-Xmx160m")
        java += ["org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(self.data / f"{name}.conf")]
        return Launch(name, java, self._environment, listens_on=self.settings.ports[name])

    def _launch_broker(self, twin: str) -> Launch:
        name = f"{BROKER}{twin}"
        java = self._java(
            "proxy" if self.proxied else "broker",
            *DISK,
            "-Xms256m",
            "-Xmx768m",
            "-XX:MaxDirectMemorySize=512m",
        )
        configuration = str(self.data / f"{name}.conf")
        if self.proxied:
            java += ["org.apache.rocketmq.proxy.ProxyStartup", "-pm", "local", "-bc", configuration]
            java += ["-n", self._names_at, "-pc", str(self.data / "proxy.json")]
        else:
            java += ["org.apache.rocketmq.broker.BrokerStartup", "-n", self._names_at, "-c", configuration]
        return Launch(name, java, self._environment)

    def remove(self) -> None:
        """See Server; a broker that says goodbye in order takes half a minute, and its data go anyway."""
        self.kill()
        super().remove()

    def administration(self, *arguments: str) -> list[str]:
        """Return the command that runs RocketMQ's own administration tool."""
        return [
            *self._java("tools", "-Xmx128m"),
            "org.apache.rocketmq.tools.command.MQAdminStartup", *arguments, "-n", self._names_at,
        ]  # fmt: skip

    @property
    def _names_at(self) -> str:
        return ";".join(f"{LOOPBACK}:{self.settings.ports[f'{NAME_SERVER}{twin}']}" for twin in self.twins)

    @property
    def _environment(self) -> Mapping[str, str]:
        return {"ROCKETMQ_HOME": str(self.data), "NAMESRV_ADDR": self._names_at}

    def _java(self, log: str, *options: str) -> list[str]:
        program = rocketmq_jars.java()
        if program is None:
            raise ServiceError("RocketMQ needs Java, which is not installed. Run `make services`.")
        return [
            program, f"-Duser.home={self.data}", f"-Drocketmq.home.dir={self.data}", "-Djava.net.preferIPv4Stack=true",
            "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError", *OPEN, *options,
            f"-Drmq.logback.configurationFile=rmq.{log}.logback.xml", "-cp", rocketmq_jars.class_path(self.version),
        ]  # fmt: skip

    def _name_server(self, twin: str) -> Mapping[str, object]:
        return {
            "listenPort": self.settings.ports[f"{NAME_SERVER}{twin}"],
            "bindAddress": LOOPBACK,
            "kvConfigPath": self.data / f"kvConfig{twin}.json",
        }

    def _broker(self, twin: str) -> Mapping[str, object]:
        store = self.data / f"store{twin}"
        account = json.dumps({"username": self.user, "password": self.settings.password})
        credentials = json.dumps({"accessKey": self.user, "secretKey": self.settings.password})
        return {
            "brokerClusterName": "DefaultCluster",
            "brokerName": f"broker{twin or '-a'}",
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "namesrvAddr": self._names_at,
            "brokerIP1": LOOPBACK,
            "bindAddress": LOOPBACK,
            "listenPort": self.settings.ports[f"{BROKER}{twin}"],
            "haListenPort": self.settings.ports[f"ha{twin}"],
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            # The defaults map a gibibyte and are slow to delete.
            "mappedFileSizeCommitLog": 64 * 1024 * 1024,
            "mappedFileSizeConsumeQueue": 600_000,
            "maxHashSlotNum": 50_000,
            "maxIndexNum": 200_000,
            "diskMaxUsedSpaceRatio": 95,
            "autoCreateTopicEnable": "true",
            "autoCreateSubscriptionGroup": "true",
            "enablePropertyFilter": "true",
            "enableMixedMessageType": "true",
            "timerWheelEnable": "true",
            "timerPrecisionMs": 100,
            # It compares the whole wheel, 39 MB, byte by byte: every second, that costs a tenth of a core. What came from
            # the wheel since then comes again after a kill, so brokers that are killed keep RocketMQ's own second.
            "timerFlushIntervalMs": 30_000 if self.proxied else 1000,
            # Until a name server that was started again knows the broker; it takes no less than ten seconds.
            "registerNameServerPeriod": 30_000 if self.proxied else 10_000,
            # Decisions are noted every 3 s: a check much earlier would ask about what is decided.
            "transactionTimeOut": 6000,
            "transactionCheckInterval": 3000,
            "authenticationEnabled": "true",
            "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
            "authenticationMetadataProvider": (
                "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
            ),
            "authorizationEnabled": "true",
            "authorizationProvider": "org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider",
            "authorizationMetadataProvider": (
                "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider"
            ),
            "initAuthenticationUser": account,
            "innerClientAuthenticationCredentials": credentials,
        }

    def _proxy(self) -> Mapping[str, object]:
        return {
            "rocketMQClusterName": "DefaultCluster",
            "proxyMode": "LOCAL",
            "namesrvAddr": self._names_at,
            "localServeAddr": LOOPBACK,
            "grpcServerPort": self.settings.ports["grpc"],
            "remotingListenPort": self.settings.ports["proxy"],
            "minInvisibleTimeMillsForRecv": 1000,
            "grpcClientConsumerMinLongPollingTimeoutMillis": 200,
            "topicRouteServiceCacheRefreshSeconds": 2,
            "grpcThreadPoolNums": 8,
        }


class RocketMQBroker(RocketMQ):
    """Name server and broker without a proxy: starts sooner, for tests that kill."""

    proxied: ClassVar[bool] = False


class RocketMQPair(RocketMQBroker):
    """Two name servers, and two brokers that share the topics' queues: what goes on when one of them dies."""

    kind: ClassVar[str] = "rocketmq-pair"
    port_names: ClassVar[Sequence[str]] = ("namesrv", "broker", "ha", "namesrv-b", "broker-b", "ha-b")
    twins: ClassVar[Sequence[str]] = ("", "-b")

    @property
    def url(self) -> str:
        """The URL with both name servers."""
        return f"rocketmq://{self.user}:{self.settings.password}@{self._names_at.replace(';', ',')}"


def _lines(settings: Mapping[str, object]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())
