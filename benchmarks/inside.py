"""Measurements inside one process, each in a fresh one: the engine's own cost, and its memory."""

import json
import subprocess
import sys
from collections.abc import Callable

from benchmarks.stage.servers import ROOT, Servers

_MESSAGES = 100_000
_KEYS = 1_000_000


def engine(kind: str) -> Callable[[Servers, float], dict[str, float]]:
    """Return what measures the engine's cost per message in memory, by stage."""

    def measure(_servers: Servers, scale: float) -> dict[str, float]:
        return _figures("benchmarks.engine_cost", kind, str(max(10_000, round(_MESSAGES * scale))))

    return measure


def memory(_servers: Servers, scale: float) -> dict[str, float]:
    """Return what many distinct keys leave behind."""
    return _figures("benchmarks.memory", str(max(20_000, round(_KEYS * scale))))


def _figures(module: str, *arguments: str) -> dict[str, float]:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{module} failed:\n{done.stderr[-3000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))
