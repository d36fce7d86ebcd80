"""Fields below `redis:`."""

from pydantic import Field

from oncemq.config.model.fields import Count, Duration, SecretText, Text, Url
from oncemq.config.model.section import Section


class Redis(Section):
    """Redis for locks, marks and flags: one server, a cluster, or a server named by sentinels."""

    url: Url = Field(
        description="Where it is: `redis://`, `rediss://` (TLS), `redis+cluster://` or `redis+sentinel://`; of a "
        "cluster several addresses, separated by commas.",
        examples=["redis://localhost:6379/0", "redis+cluster://localhost:7001,localhost:7002"],
    )
    username: Text | None = Field(None, description="Instead of in the URL.")
    password: SecretText | None = Field(
        None, description="Instead of in the URL.", examples=["${REDIS_PASSWORD}"]
    )
    timeout: Duration | None = Field(
        None, description="How long connecting, and a single answer, may take. Default 2s.", examples=["2s"]
    )
    connections: Count | None = Field(
        None, description="Connections to one server at most, in each process. Default 64."
    )
    ca: Text | None = Field(
        None,
        description="For `rediss://`: a file of authorities to trust besides the system's. The server must always prove "
        "to be the host that the URL names, each node of a cluster the one that the others name.",
        examples=["/etc/ssl/our-ca.pem"],
    )
    cert: Text | None = Field(None, description="For `rediss://`: our own certificate, a file.")
    key: Text | None = Field(None, description="The file of its key, unless `cert` holds it.")
