"""Values and helpers that every layer may use, and that import nothing of OnceMQ."""
