"""Observability for operators: logs, metrics, health."""
