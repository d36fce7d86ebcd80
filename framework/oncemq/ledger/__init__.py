"""The framework's own tables, and the differences between databases."""
