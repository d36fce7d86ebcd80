"""Client of RocketMQ over its remoting protocol, in pure Python; it needs nothing of the framework."""
