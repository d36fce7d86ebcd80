"""Where RocketMQ's programs come from: its jars from Maven Central, fetched once for a checkout."""

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

from services.errors import ServiceError

VERSION, VERSION_4 = "5.3.3", "4.9.7"
FOLDER = Path(__file__).parents[3] / ".services" / "jars"
COLLECT = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
DIGESTS = Path(__file__).with_name("jars.sha256")
"""What each jar is, byte by byte: a name and a version can be served with other content."""
POMS = {VERSION: "rocketmq.xml", VERSION_4: "rocketmq_4.xml"}


def java() -> str | None:
    """Return the Java that runs RocketMQ."""
    return shutil.which("java")


def available(place: Path | None = None) -> bool:
    """Return whether there is a Java, and the jars, RocketMQ's unless given, or a Maven that fetches them."""
    return java() is not None and ((place or place_of(VERSION)).is_dir() or shutil.which("mvn") is not None)


def class_path(version: str = VERSION) -> str:
    """Return the class path; fetches the jars the first time, with Maven's own settings.

    Raises:
        ServiceError: they cannot be fetched; says why.
    """
    return fetched(place_of(version), POMS[version], f"-Drocketmq.version={version}")


def fetched(place: Path, pom: str, *options: str) -> str:
    """Return the class path of a folder of jars, which are fetched the first time.

    Raises:
        ServiceError: they cannot be fetched; says why.
    """
    if not place.is_dir():
        FOLDER.parent.mkdir(parents=True, exist_ok=True)
        with (FOLDER.parent / f"{place.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.is_dir():
                collect(Path(__file__).with_name(pom), place, *options)
    return f"{place}/*"


def collect(pom: Path, place: Path, *options: str) -> None:
    """Copy what a pom depends on into a folder, which has its name only when everything is there."""
    maven = shutil.which("mvn")
    if maven is None:
        raise ServiceError(
            f"The jars of {pom.stem} are missing and there is no Maven to fetch them: install maven."
        )
    print(f"fetching the jars of {pom.stem} from Maven Central", flush=True)
    partial = place.with_name(f"{place.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    done = subprocess.run(
        [maven, "-q", "-B", "-f", str(pom), *options, COLLECT, f"-DoutputDirectory={partial}", "-DincludeScope=runtime"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=place.parent if place.parent.exists() else None,
    )  # fmt: skip
    if done.returncode != 0:
        raise ServiceError(f"Maven could not fetch the jars of {pom.stem}:\n{done.stdout[-3000:]}")
    changed = changed_jars(place.name, partial)
    if changed:
        raise ServiceError(
            f"{partial}: not the jars that {DIGESTS.name} knows: {', '.join(changed)}. After a change of version, write its "
            f"lines: cd {place.parent} && sha256sum kafka-*/*.jar rocketmq-*/*.jar redisson-*/*.jar"
        )
    partial.rename(place)


def changed_jars(name: str, folder: Path) -> list[str]:
    """Return the jars in `folder` that differ from those known for `name`, and those that are missing or new.

    Nothing is known for a version that was chosen by hand.
    """
    known = {
        path.partition("/")[2]: digest
        for digest, path in (line.split(maxsplit=1) for line in DIGESTS.read_text().splitlines())
        if path.startswith(f"{name}/")
    }
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
    return sorted(jar for jar in known.keys() | found.keys() if known and known.get(jar) != found.get(jar))


def place_of(version: str) -> Path:
    """Return the folder of RocketMQ's jars."""
    return FOLDER / f"rocketmq-{version}"
