"""OpenTelemetry: spans, instruments, and how both leave the process (extra `otel`)."""
