"""What OnceMQ tells about itself while it is measured, on the address of its metrics."""

import socket
import urllib.request
from collections.abc import Sequence

_LINE = "oncemq_strategy_figure{"
_PATIENCE = 10.0


def free_address() -> str:
    """Return host:port that no one listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def told(address: str, names: Sequence[str]) -> dict[str, float]:
    """Return these figures of its strategies.

    Raises:
        RuntimeError: it does not tell one of them.
    """
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=_PATIENCE) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith(_LINE)]
    found = {name: line for name in names for line in lines if f'figure="{name}"' in line}
    if len(found) < len(names):
        raise RuntimeError(f"no figure {', '.join(set(names) - set(found))} at http://{address}/metrics")
    return {name: float(line.rpartition(" ")[2]) for name, line in found.items()}
