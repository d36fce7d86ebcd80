"""Suites, fakes and clocks for tests of adapters, strategies and handlers."""
