"""Coordination between processes: workers, leases, group owners and shards."""
