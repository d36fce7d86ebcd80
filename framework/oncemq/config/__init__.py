"""From YAML to a running app: the model, where each line stands, and how it is put together."""
