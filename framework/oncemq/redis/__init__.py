"""Redis for strategies: one client per process for a single server, Sentinel or Cluster; never sends a command twice.

address     parses and checks a URL
tls         TLS files
opening     opens routes from an address or from the user's own client
routes      server of a key: server, cluster, original_cluster
client      commands and scripts, many of them in one round trip
listener    wakes subscribers on published messages
probe       checks that Redis answers, and warns of risky settings
"""

from oncemq.redis.client import RedisClient

__all__ = ["RedisClient"]
