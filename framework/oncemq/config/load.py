"""The ways into the configuration: files to a model, files to a plan."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from oncemq.config.build import LoadedApp, build_app
from oncemq.config.catalog import Catalog
from oncemq.config.model import AppModel
from oncemq.config.problems import Problems
from oncemq.config.read import read_tree
from oncemq.config.tree import Fields
from oncemq.config.validate import validate
from oncemq.errors import ConfigError
from oncemq.run.plan import AppPlan


def load(
    files: Sequence[Path],
    *,
    environment: Mapping[str, str] | None = None,
    catalog: Catalog | None = None,
    consumers: bool = True,
) -> LoadedApp:
    """Return the app that `files`, laid over each other, declare; connects to no broker.

    Args:
        files: the base first, overlays after it; the folder of the first is importable.
        environment: what `${VAR}` may name; the process's own unless given.
        catalog: which adapters and strategies there are; what is installed, unless given.
        consumers: build the consumers, which imports their handlers; without them the app can only publish.

    Raises:
        ConfigError: it cannot run; carries every problem with its place.
    """
    problems = Problems()
    tree, model = _model(files, environment, problems)
    if not consumers:
        model = model.model_copy(update={"consumers": {}})
    return build_app(model, tree, problems, Path(files[0]).parent, catalog)


def load_plan(files: Sequence[Path]) -> AppPlan:
    """Return what the engine runs; takes only what can be pickled, for a spawned process.

    Raises:
        ConfigError: it cannot run; carries every problem with its place.
    """
    return load(files).plan


def load_model(files: Sequence[Path], *, environment: Mapping[str, str] | None = None) -> AppModel:
    """Return what `files` declare, without importing handlers or building anything.

    Raises:
        ConfigError: the files are not a valid app; carries every problem with its place.
    """
    return _model(files, environment, Problems())[1]


def _model(
    files: Sequence[Path], environment: Mapping[str, str] | None, problems: Problems
) -> tuple[Fields, AppModel]:
    tree = read_tree(files, os.environ if environment is None else environment, problems)
    model = validate(tree, problems)
    problems.raise_errors()
    if model is None:
        raise ConfigError(problems.found)
    return tree, model
