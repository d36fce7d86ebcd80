"""Writes the bytecode that pytest makes of modules with their assertions rewritten, so that no worker has to.

    python tests/rewritten.py FOLDER...

The workers of a run begin at once and read the same modules, so each would rewrite all of them; where Python may write no
bytecode (PYTHONDONTWRITEBYTECODE), so would each later process. pytest finds the bytecode by a hash of the source: none is out of date.
What writes it is private in pytest: where a version has other names, nothing is written, and the workers rewrite as before.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

WRITERS = 2
"""Processes."""


class _Untraced:
    """Where pytest would note why something was not written."""

    def trace(self, *_: object) -> None:
        """Note nothing: the next line of a run says how many were written."""


def write(file: Path) -> bool:
    """Write a module's bytecode where pytest looks for it; return whether it was missing or made from another source."""
    rewrite: Any = import_module("_pytest.assertion.rewrite")
    folder: Path = rewrite.get_cache_dir(file)
    place = folder / f"{file.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(file, place) is not None:
        return False
    source_hash, code = rewrite._rewrite_test(file, None)
    folder.mkdir(parents=True, exist_ok=True)
    return bool(rewrite._write_pyc(_Untraced(), code, source_hash, place))


def write_all(folders: list[Path]) -> str:
    """Write that of all modules below the folders; returns a line for people."""
    files = [file.resolve() for folder in folders for file in sorted(folder.rglob("*.py"))]
    try:
        with ProcessPoolExecutor(WRITERS) as pool:
            written = sum(pool.map(write, files, chunksize=20))
    except (AttributeError, TypeError, ImportError, ValueError) as error:
        return f"pytest rewrites assertions in each worker, since its private parts are others: {error}"
    return f"assertions of {written} modules rewritten, of {len(files)}"


if __name__ == "__main__":
    print(write_all([Path(name) for name in sys.argv[1:]]))  # noqa: T201
