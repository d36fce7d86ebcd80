"""Model of the configuration: every section, field and default, and their validation."""
