"""Apps declared in a test: stub strategies, files in a folder of the test's own, and what loading them says."""

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Self

from oncemq.config import load
from oncemq.config.build.catalog import Catalog
from oncemq.config.build.plan import LoadedApp
from oncemq.contracts.checks import UnitKind
from oncemq.contracts.strategy import Scope, Strategy, Traits
from oncemq.errors import ConfigError
from oncemq.testing.scripted import ScriptedAdapter

_NUMBERS = count()

BASE = """\
app: shop
brokers: {main: {url: "scripted://host"}}
database: {url: "sqlite://"}
topics:
  orders: {key: body.id, strategies: [decide]}
consumers:
  count: {topic: orders, handler: "MODULE:handle"}
"""
HANDLERS = "def handle(order: dict) -> None: ...\nasync def later(order: dict) -> None: ...\nnumber = 1\n"


class Decide(Strategy):
    """Decides, and remembers its options."""

    traits: ClassVar[Traits] = Traits(decides=True)

    def __init__(self, options: Mapping[str, Any], scope: Scope) -> None:
        self.options = dict(options)
        self.scope = scope

    @classmethod
    def build(cls, options: Mapping[str, Any], scope: Scope) -> Self:
        """Make one."""
        return cls(options, scope)


class Order(Decide):
    """Decides by order."""

    traits: ClassVar[Traits] = Traits(decides=True, promises_order=True)


class Guard(Decide):
    """Only guards."""

    traits: ClassVar[Traits] = Traits(decides=False, kinds=frozenset(UnitKind), max_batch=7)


class Held(Decide):
    """Decides by places that a later message takes."""

    traits: ClassVar[Traits] = Traits(decides=True, holds_key=True)

    def owns(self) -> Sequence[str]:
        """Return the column that the options name."""
        return (str(self.options["column"]),) if "column" in self.options else ()


class Direct(Decide):
    """Works without a transaction only."""

    traits: ClassVar[Traits] = Traits(decides=True, kinds=frozenset({UnitKind.DIRECT}))


CATALOG = Catalog(
    {"scripted": ScriptedAdapter},
    {"decide": Decide, "order": Order, "guard": Guard, "direct": Direct, "held": Held},
)


def fresh_module() -> str:
    """Return a module name that no other test has imported."""
    return f"declared_handlers_{next(_NUMBERS)}"


def declare(
    folder: Path, text: str, *overlays: str, handlers: str = HANDLERS, name: str = "app.yaml"
) -> list[Path]:
    """Write an app and its handlers; MODULE in the text becomes the name of the handlers' module."""
    module = fresh_module()
    (folder / f"{module}.py").write_text(handlers)
    files = [folder / name, *(folder / f"overlay{index}.yaml" for index in range(len(overlays)))]
    for file, content in zip(files, (text, *overlays), strict=True):
        file.write_text(content.replace("MODULE", module))
    return files


def loaded(
    folder: Path,
    text: str,
    *overlays: str,
    environment: Mapping[str, str] | None = None,
    handlers: str = HANDLERS,
) -> LoadedApp:
    """Return the app that the texts declare."""
    files = declare(folder, text, *overlays, handlers=handlers)
    return load(files, environment=environment or {}, catalog=CATALOG)


def problems(
    folder: Path,
    text: str,
    *overlays: str,
    environment: Mapping[str, str] | None = None,
    handlers: str = HANDLERS,
) -> list[str]:
    """Return what loading the texts complains about, without the folder and with MODULE for the module."""
    files = declare(folder, text, *overlays, handlers=handlers)
    module = next(file.stem for file in folder.glob("declared_*.py"))
    try:
        load(files, environment=environment or {}, catalog=CATALOG)
    except ConfigError as error:
        said = [str(problem) for problem in error.problems]
    else:
        return []
    return [
        line.replace(f"{folder}/", "").replace(str(folder), "FOLDER").replace(module, "MODULE")
        for line in said
    ]
