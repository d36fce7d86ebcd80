"""Redis for strategies: one client per process, single server, Sentinel or Cluster alike, never sending a command twice.

address     what a URL says, and what can be wrong about it
tls         which files TLS needs
opening     from an address, or a client of the user's own, to routes
routes      which server a key lives on: server, cluster, original_cluster
client      commands, scripts and many of them in one round trip
listener    being woken by published messages
probe       whether it answers, and what is risky about its settings
"""

from oncemq.redis.client import RedisClient

__all__ = ["RedisClient"]
