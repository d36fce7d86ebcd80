"""The framework's own tables and what differs between databases."""
