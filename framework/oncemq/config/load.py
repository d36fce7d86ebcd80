"""Loads the configuration: files to a model, files to a plan; and apps declared in Python, named `module:app`."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from oncemq.config.build.catalog import Catalog
from oncemq.config.build.importing import import_object, make_importable
from oncemq.config.build.plan import LoadedApp, build_app
from oncemq.config.model.app_model import AppModel
from oncemq.config.model.fields import WrongValue
from oncemq.config.model.validate import validate
from oncemq.config.source.problems import Problems
from oncemq.config.source.read import read_texts, read_tree
from oncemq.config.source.tree import Fields, from_python
from oncemq.engine.plan import AppPlan
from oncemq.errors import ConfigError

_OF_THE_LEDGER = ("app", "database")
_WANTED_PARTS = tuple(f"{name}:".encode() for name in _OF_THE_LEDGER)
_PARTS = re.compile(rb"^(?=\S)", re.MULTILINE)
_IN_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class Loadable(Protocol):
    """An app declared in Python, such as `oncemq.App`."""

    def load(self, *, consumers: bool = True) -> LoadedApp:
        """Return the app, checked and built."""
        ...


def load(
    files: Sequence[Path],
    *,
    environment: Mapping[str, str] | None = None,
    catalog: Catalog | None = None,
    consumers: bool = True,
    texts: Mapping[Path, bytes] | None = None,
) -> LoadedApp:
    """Return the app declared by `files`, merged in order; connects to no broker.

    Args:
        files: the base first, then overlays; the folder of the first is importable. Or a single name
            `module:app` of an app in Python, searched in the working directory and among installed modules.
        environment: variables for `${VAR}`; by default those of the process.
        catalog: available adapters and strategies; by default the installed ones.
        consumers: build the consumers, which imports their handlers; without them the app can only publish.
        texts: of the files, as `pinned` returned them; by default they are read.

    Raises:
        ConfigError: it cannot run; carries every problem with its place.
    """
    in_code = _in_code(files)
    if in_code is not None:
        return in_code.load(consumers=consumers)
    problems = Problems()
    tree, model = _model(files, environment, problems, texts)
    if not consumers:
        model = model.model_copy(update={"consumers": {}})
    return build_app(model, tree, problems, Path(files[0]).parent, catalog)


def pinned(files: Sequence[Path]) -> dict[Path, bytes]:
    """Return the texts of `files` as they are now, so that several processes load the same; nothing for an app in Python.

    Raises:
        ConfigError: a file cannot be read.
    """
    named = any(_IN_CODE.fullmatch(str(file)) and not file.exists() for file in files)
    return {} if named else read_texts(files)


def load_ledger(files: Sequence[Path]) -> AppPlan:
    """Return the app with its database alone, also if other parts of its files are wrong; it has no brokers and no consumers.

    Raises:
        ConfigError: its name or its database is not known.
    """
    in_code = _in_code(files)
    if in_code is not None:
        return in_code.load(consumers=False).plan
    problems = Problems()
    try:
        tree = read_tree(files, os.environ, problems)
    except ConfigError as error:
        tree = _without_other_parts(files, problems, error)
    # Variables of the other parts may be missing.
    problems = Problems(secrets=problems.secrets)
    wanted = {name: node for name, node in tree.fields.items() if name in _OF_THE_LEDGER}
    wanted["brokers"] = from_python({"none": {"url": "embedded://"}}, tree.position)  # an app must have one
    tree = Fields(wanted, tree.position, tree.keys)
    model = validate(tree, problems)
    problems.raise_errors()
    if model is None:
        raise ConfigError(problems.found)
    return build_app(model.model_copy(update={"brokers": {}}), tree, problems, Path(files[0]).parent).plan


def _without_other_parts(files: Sequence[Path], problems: Problems, error: ConfigError) -> Fields:
    """Return the parts of the ledger, of files of which another part is no YAML; raises the error if they are not found."""
    parts = {
        file: b"".join(part for part in _PARTS.split(text) if part.startswith(_WANTED_PARTS))
        for file, text in read_texts(files).items()
    }
    try:
        return read_tree([file for file in files if parts[file]], os.environ, problems, parts)
    except (ConfigError, IndexError):
        raise error from None


def load_plan(files: Sequence[Path]) -> AppPlan:
    """Return the engine's plan; its argument can be pickled, for a spawned process.

    Raises:
        ConfigError: it cannot run; carries every problem with its place.
    """
    return load(files).plan


def load_model(files: Sequence[Path], *, environment: Mapping[str, str] | None = None) -> AppModel:
    """Return the model of `files`, without importing handlers or building anything.

    Raises:
        ConfigError: the files are not a valid app; carries every problem with its place.
    """
    in_code = _in_code(files)
    if in_code is not None:
        return in_code.load(consumers=False).model
    return _model(files, environment, Problems())[1]


def read_app(files: Sequence[Path]) -> tuple[Fields, AppModel, Problems]:
    """Return source, model and what was found so far, for those who build the app with other parts; imports nothing.

    Raises:
        ConfigError: the files are not a valid app; carries every problem with its place.
    """
    if any(_IN_CODE.fullmatch(str(file)) and not file.exists() for file in files):
        raise ConfigError([f"{files[0]} is an app in Python: this needs an app in YAML"])
    problems = Problems()
    tree, model = _model(files, None, problems)
    return tree, model, problems


def _in_code(files: Sequence[Path]) -> Loadable | None:
    """Return the app in Python if one is named instead of files, else None."""
    names = [str(file) for file in files if _IN_CODE.fullmatch(str(file)) and not file.exists()]
    if not names:
        return None
    if len(files) > 1:
        raise ConfigError([f"{names[0]} is an app in Python: nothing can be laid over it, so name it alone"])
    here = Path.cwd()
    make_importable(here)
    try:
        found = import_object(names[0], here)
    except WrongValue as error:
        advice = f" – {error.advice}" if error.advice else ""
        raise ConfigError([f"{names[0]}: {error}{advice}"]) from error
    if not callable(getattr(found, "load", None)):
        raise ConfigError([f"{names[0]} is {type(found).__name__}, not an oncemq.App"])
    app: Loadable = found
    return app


def _model(
    files: Sequence[Path],
    environment: Mapping[str, str] | None,
    problems: Problems,
    texts: Mapping[Path, bytes] | None = None,
) -> tuple[Fields, AppModel]:
    tree = read_tree(files, os.environ if environment is None else environment, problems, texts)
    model = validate(tree, problems)
    problems.raise_errors()
    if model is None:
        raise ConfigError(problems.found)
    return tree, model
