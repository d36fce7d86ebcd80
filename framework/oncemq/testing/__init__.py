"""Suites, fakes and clocks for those who test adapters, strategies or their own handlers."""
