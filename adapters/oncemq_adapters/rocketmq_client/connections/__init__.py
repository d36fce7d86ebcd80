"""Client of RocketMQ's brokers: routes, connections, heartbeats, timers."""
