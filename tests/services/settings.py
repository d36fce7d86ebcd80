"""What a server keeps over restarts: its ports, and the password it was set up with."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from services import ports

FILE = "settings.json"


@dataclass
class Settings:
    """The choices of one server, persisted in its folder."""

    ports: dict[str, int]
    password: str

    @classmethod
    def of(cls, folder: Path, port_names: Sequence[str]) -> Self:
        """Return what was chosen before, or choose and persist it now."""
        file = folder / FILE
        if file.exists():
            return cls(**json.loads(file.read_text()))
        chosen = dict(zip(port_names, ports.choose(len(port_names)), strict=True))
        settings = cls(chosen, secrets.token_hex(8))
        settings.write(folder)
        return settings

    def move(self, folder: Path) -> None:
        """Choose other ports: someone else listens on ours."""
        self.ports = dict(zip(self.ports, ports.choose(len(self.ports)), strict=True))
        self.write(folder)

    def write(self, folder: Path) -> None:
        """Persist the choices, readable for ourselves alone."""
        file = folder / FILE
        file.touch(mode=0o600)
        file.write_text(json.dumps(asdict(self), indent=1) + "\n")
