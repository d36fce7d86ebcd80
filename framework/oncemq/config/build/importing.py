"""Imports the user's object from `module:name`; an error names the line in the user's own code."""

import importlib
import sys
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from oncemq.config.model.fields import WrongValue


def make_importable(folder: Path) -> None:
    """Make modules beside the app's file importable, before installed ones of the same name."""
    text = str(folder.resolve())
    if text not in sys.path:
        sys.path.insert(0, text)


def import_object(reference: str, folder: Path) -> Any:
    """Return the object at `module:name`.

    Raises:
        WrongValue: it does not exist, or the module cannot be imported; says where in the user's code.
    """
    module_name, _colon, attribute = reference.partition(":")
    found = _import_module(module_name, folder)
    for step in attribute.split("."):
        if not hasattr(found, step):
            known = [name for name in dir(found) if not name.startswith("_")]
            raise WrongValue(
                f"{module_name!r} has no {step!r}",
                _suggest(step, known, f"define it in {_file_of(module_name)}"),
            )
        found = getattr(found, step)
    return found


def reference_of(function: Any, named: Any) -> str:
    """Return `module:name` of a function: as the file says it, else by the function itself."""
    if isinstance(named, str):
        return named
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', repr(function))}"


def _import_module(name: str, folder: Path) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        problem = _not_found(name, folder, error)
    except Exception as error:
        problem = _failed(name, folder, error)
    except SystemExit as error:
        problem = _failed(name, folder, error)
    raise problem


def _not_found(name: str, folder: Path, error: ModuleNotFoundError) -> WrongValue:
    missing = error.name or ""
    if missing != name and not name.startswith(f"{missing}."):
        return _failed(name, folder, error)
    advice = _suggest(
        name, _modules_in(folder), f"put it beside the file, or install it; looked first in {folder}"
    )
    return WrongValue(f"there is no module {missing!r}", advice)


def _failed(name: str, folder: Path, error: BaseException) -> WrongValue:
    """Return the error with the last frame of the user's own code, where the mistake is."""
    if isinstance(error, SyntaxError) and error.filename:
        place, said = f"{_short(error.filename)}:{error.lineno}", f"SyntaxError: {error.msg}"
    else:
        place, said = _users_line(error, folder), f"{type(error).__name__}: {error}"
    return WrongValue(f"module {name!r} cannot be imported: {said}", f"correct {place}" if place else "")


def _users_line(error: BaseException, folder: Path) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen")
        and frame.filename != __file__
        and frame.name != "import_module"
    ]
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder.resolve())]
    chosen = (own or frames)[-1:]
    return f"{_short(chosen[0].filename)}:{chosen[0].lineno}" if chosen else ""


def _short(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file


def _file_of(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    return _short(file) if file else module


def _modules_in(folder: Path) -> list[str]:
    try:
        entries = list(folder.iterdir())
    except OSError:
        return []
    return [entry.stem for entry in entries if entry.suffix == ".py" or (entry / "__init__.py").is_file()]


def _suggest(name: str, known: Iterable[str], otherwise: str) -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else otherwise
