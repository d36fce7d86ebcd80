"""The adapter of docs/writing-an-adapter.md passes the parts of the suite that need neither server nor second process."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from uuid import uuid4

import pytest

from oncemq.testing.adapter_suite import AdapterHarness
from oncemq.testing.adapter_suite.dead_letters import DeadLetters
from oncemq.testing.adapter_suite.delivering import Delivering
from oncemq.testing.adapter_suite.publishing import Publishing
from oncemq.testing.adapter_suite.retrying import Retrying
from oncemq.testing.adapter_suite.settling import Settling
from support.brokers.in_memory import InMemoryHarness

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def example(name: str) -> ModuleType:
    """Return a module of the documentation's examples, each run of a test module a new one."""
    spec = spec_from_file_location(f"documented_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class TestDocumentedAdapter(Delivering, Settling, Retrying, DeadLetters, Publishing):
    """As a reader would test it."""

    @pytest.fixture
    def harness(self) -> AdapterHarness:
        """Return a broker of a name that no one else uses."""
        harness = InMemoryHarness(uuid4().hex)
        harness.adapter_class = example("memory_adapter").MemoryAdapter
        return harness
