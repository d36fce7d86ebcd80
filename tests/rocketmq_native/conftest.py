"""These tests need rocketmq-client-python, which cannot live beside its namesakes: `make test-rocketmq-native` runs them."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("rocketmq") else ["test_*.py"]
