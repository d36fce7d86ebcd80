"""Checks what would be published: `PYTHONPATH=tests python -m release FOLDER [--tools ENVIRONMENT] [PYTHON…]`.

FOLDER holds the built wheel and sdist. The wheel holds every Python file of the source and, besides, exactly the files of
`files.txt`; both descriptions render. With tools, every package that the wheel and its extras install has a known licence, and
`sbom.json` lists them (CycloneDX). Each of the two packages, installed not editable into a fresh environment of each Python,
passes the demo and a smoke test.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "framework", ROOT / "adapters", ROOT / "strategies")
GOLDEN = Path(__file__).with_name("files.txt")
EXTRAS = "rabbitmq,rocketmq,postgres,mysql,redis,bloom,metrics,reload"
"""Those that can be installed together."""

LICENCES = (
    *(
        "Apache-2.0",
        "Apache Software License",
        "Apache-2.0 OR BSD-3-Clause",
        "MIT OR Apache-2.0",
        "MIT-0",
        "Apache-2.0 AND BSD-2-Clause",
        "BSD",
        "BSD License",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "ISC",
        "MIT",
        "MIT License",
    ),
    *("MPL-2.0", "Python Software Foundation License", "PSF-2.0"),
    "LGPL-3.0-only",  # psycopg, which is imported and not changed
    "GNU Lesser General Public License v3 (LGPLv3)",
)
_SMOKE = (
    ("-m", "oncemq", "demo"),
    ("-m", "oncemq", "init", "shop"),
    ("-m", "oncemq", "schema"),
    ("-m", "oncemq", "-f", "shop/app.yaml", "check"),
    ("-m", "pytest", "-q", "--rootdir=shop", "shop"),
)


def wrong_files(wheel: Path) -> list[str]:
    """Return what the wheel has too much or too little."""
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if not name.endswith("/")}
    info = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"
    found = {name.replace(info, "*.dist-info") for name in names}
    code = {str(path.relative_to(source)) for source in SOURCES for path in source.rglob("*.py")}
    wanted = code | set(GOLDEN.read_text().split())
    more = sorted(name for name in found - wanted if not _is_bundled_code(name))
    return [
        *(f"missing: {name}" for name in sorted(wanted - found)),
        *(f"unexpected: {name}" for name in more),
    ]


def _is_bundled_code(name: str) -> bool:
    return name.startswith("oncemq/examples/") and name.endswith(".py")


def tried(python: str, package: Path) -> list[str]:
    """Return what fails when `package` is installed into a fresh environment and used from an empty folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inside = folder / "environment" / "bin" / "python"
        _run([python, "-m", "venv", str(inside.parents[1])], folder)
        _run([str(inside), "-m", "pip", "install", "--quiet", str(package), "pytest"], folder)
        where = _run([str(inside), "-c", "import oncemq; print(oncemq.__file__)"], folder).stdout
        if str(inside.parents[1]) not in where:
            return [f"{package.name} was not installed, but found at {where.strip()}"]
        calls = [[str(inside), *arguments] for arguments in _SMOKE]
        failed = [(call, ran) for call in calls if (ran := _run(call, folder, check=False)).returncode]
        return [f"{package.name}: {' '.join(call[1:])}\n{ran.stdout}{ran.stderr}" for call, ran in failed]


def _run(command: list[str], folder: Path, *, check: bool = True) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=check)


def listed(tools: Path, wheel: Path) -> list[str]:
    """Return packages whose licence is not in `LICENCES`; writes `sbom.json` beside the folder of the wheel."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inside = folder / "environment" / "bin" / "python"
        _run([sys.executable, "-m", "venv", str(inside.parents[1])], folder)
        _run([str(inside), "-m", "pip", "install", "--quiet", f"{wheel}[{EXTRAS}]"], folder)
        sbom = wheel.parents[1] / "sbom.json"
        _run([str(tools / "bin/cyclonedx-py"), "environment", str(inside), "-o", str(sbom)], folder)
        allowed = ";".join(LICENCES)
        ran = _run(
            [
                str(tools / "bin/pip-licenses"),
                "--python",
                str(inside),
                "--allow-only",
                allowed,
                "--from=mixed",
            ],
            folder,
            check=False,
        )
        return [ran.stderr or ran.stdout] if ran.returncode else []


def main(folder: Path, tools: Path | None, pythons: list[str]) -> int:
    """Check everything; returns the exit code."""
    wheel, source = next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))
    problems = wrong_files(wheel)
    ran = _run(
        [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(source)], folder, check=False
    )
    problems += [ran.stdout] if ran.returncode else []
    problems += listed(tools, wheel) if tools else []
    for python in pythons:
        for package in (wheel, source):
            problems += tried(python, package)
            sys.stdout.write(f"tried {package.name} on {python}\n")
    sys.stdout.write("\n".join(problems or ["what would be published is whole"]) + "\n")
    return 1 if problems else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="release")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tools", type=Path, help="an environment with cyclonedx-py and pip-licenses")
    parser.add_argument("pythons", nargs="*")
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    given = _arguments()
    sys.exit(main(given.folder.resolve(), given.tools and given.tools.resolve(), given.pythons))
