"""Configuration of an app: YAML files to a checked plan, with every problem told at its line."""

from oncemq.config.load import load, load_model, load_plan

__all__ = ["load", "load_model", "load_plan"]
