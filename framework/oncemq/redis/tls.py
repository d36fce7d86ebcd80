"""TLS settings for Redis: the files, and the arguments for the client libraries."""

import ssl
from dataclasses import dataclass
from typing import Any

from oncemq.common.problems import Problem
from oncemq.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files in PEM form.

    Args:
        ca: trusted CAs, in addition to the system's.
        cert: our certificate, if the server asks for one.
        key: its private key, unless `cert` holds it.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def check(self, *, tls: bool) -> None:
        """Return if the files can be used.

        Args:
            tls: the URL says `rediss://`.

        Raises:
            ConfigError: they cannot; says which.
        """
        for name in ("ca", "cert", "key"):
            if getattr(self, name) is not None and not tls:
                problem = Problem(
                    f"option {name!r} is for TLS, but the URL says redis", "write rediss://", name
                )
                raise ConfigError([problem])
        if self.key is not None and self.cert is None:
            raise ConfigError([Problem("a key needs its certificate", "add cert:", "key")])
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise _unusable("ca", error) from error
        try:
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except OSError as error:
            raise _unusable("cert", error) from error

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for the clients of redis-py and redis-py-cluster.

        Older ones verify the host name only on request.
        """
        return {
            "ssl": True,
            "ssl_cert_reqs": "required",
            "ssl_check_hostname": True,
            "ssl_ca_certs": self.ca,
            "ssl_certfile": self.cert,
            "ssl_keyfile": self.key,
        }


def _unusable(name: str, error: OSError) -> ConfigError:
    return ConfigError([Problem(f"the TLS files cannot be used: {error}", "", name)])
