"""Configuration of an app: from YAML files to a checked plan, with every problem reported at its line."""

from oncemq.config.load import load, load_ledger, load_model, load_plan, pinned

__all__ = ["load", "load_ledger", "load_model", "load_plan", "pinned"]
