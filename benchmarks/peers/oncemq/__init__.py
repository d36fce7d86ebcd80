"""OnceMQ: apps in YAML and their handlers."""
