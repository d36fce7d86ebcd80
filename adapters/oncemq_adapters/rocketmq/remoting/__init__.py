"""A client of RocketMQ's remoting protocol: frames, connections, routes, a producer and a consumer."""
