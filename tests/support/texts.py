"""Lists every text that a user can see, with where it stands and what the user is told to do; for review.

`make texts` prints it. Texts are found where they are written: arguments of errors and problems, log events, what commands
print, and their help. A value that is put in later shows as `…`.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("framework/oncemq", "adapters/oncemq_adapters", "strategies/oncemq_strategies")

PRINTED = {
    "line",
    "block",
    "echo",
    "confirm",
    "warn",
    "secho",
    "UsageError",
    "BadParameter",
    "ClickException",
}
REPORTED = {"Problem", "ConfigProblem", "WrongValue", "at", "at_key", "complain", "refuse", "add"}
LOGGED = {"debug", "info", "warning", "error", "exception", "critical", "log", "warned"}
JOBS = {"failed", "_failed", "_quietly"}
"""Take the name of a job, and log `… failed, nothing is lost`."""
VERDICTS = {"reject", "retry", "stale", "conflict", "defer", "parked", "wait"}
_PLACEHOLDER = re.compile(r"%[\d.]*[a-z]")
BY_ADVICE = re.compile(r"(?: – |; )(?P<advice>[^;–]+)$")


@dataclass(frozen=True, slots=True)
class Text:
    """One text.

    Args:
        kind: `error`, `problem`, `log`, `output`, `verdict` or `help`.
        place: file and line.
        text: what the user reads.
        advice: what the user is to do; empty where nothing is to be done, or the text itself says it.
    """

    kind: str
    place: str
    text: str
    advice: str = ""


def texts() -> Iterator[Text]:
    """Yield all of them, in the order of files and lines."""
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if "/testing/" in name:
                continue
            tree = ast.parse(path.read_text())
            yield from sorted(_in(tree, name), key=lambda text: int(text.place.rpartition(":")[2]))


def _in(tree: ast.Module, name: str) -> Iterator[Text]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _of_call(node, name)
        elif isinstance(node, ast.FunctionDef) and _is_command(node):
            yield Text("help", f"{name}:{node.lineno}", " ".join((ast.get_docstring(node) or "").split()))


def _of_call(call: ast.Call, name: str) -> Iterator[Text]:
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    kind = _kind(called)
    if not kind:
        return
    written = [text for argument in call.args for text in _strings(argument)]
    written = [text for text in written if " " in text.strip()]
    if not written:
        return
    text, *more = written
    if kind == "log":
        # What stands behind if and else are two events.
        shape = {"still_runs": "until idle: {}"} | dict.fromkeys(JOBS, "{} failed, nothing is lost")
        for event in written:
            found = _PLACEHOLDER.sub("…", " ".join(event.split()))
            yield Text(kind, f"{name}:{call.lineno}", shape.get(called, "{}").format(found))
        return
    advice = " ".join(more) if kind == "problem" else ""
    found = BY_ADVICE.search(text)
    if not advice and kind == "error" and found:
        advice = found["advice"]
    yield Text(kind, f"{name}:{call.lineno}", " ".join(text.split()), " ".join(advice.split()))
    for keyword in call.keywords:
        if keyword.arg in {"help", "short_help", "description"}:
            for each in _strings(keyword.value):
                yield Text("help", f"{name}:{keyword.value.lineno}", " ".join(each.split()))


def _kind(called: str) -> str:
    if called in PRINTED:
        return "output"
    if called in REPORTED:
        return "problem"
    if called in LOGGED or called in JOBS or called == "still_runs":
        return "log"
    if called in VERDICTS:
        return "verdict"
    if called in {"option", "argument", "command", "group", "Field", "Command"}:
        return "help"
    named_as_error = re.fullmatch(
        r"[A-Z]\w*(Error|Refused|Unavailable|Void|Settled|Owned|Unpublishable|Unroutable|Exceeded|Bug|Reject|Missing\w*|Invalid\w*"
        r"|Undecodable|Denied|Conflict|Unknown\w*)",
        called,
    )
    return "error" if named_as_error else ""


def _strings(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "…"
            for part in node.values
        )
    elif isinstance(node, ast.List | ast.Tuple):
        for each in node.elts:
            yield from _strings(each)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield "".join([*_strings(node.left), *_strings(node.right)])
    elif isinstance(node, ast.IfExp):
        yield from _strings(node.body)
        yield from _strings(node.orelse)


def _is_command(node: ast.FunctionDef) -> bool:
    return any(
        isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr in {"command", "group"}
        for each in node.decorator_list
    )


if __name__ == "__main__":
    for each in texts():
        advice = f"\n        do: {each.advice}" if each.advice else ""
        sys.stdout.write(f"{each.kind:<8}{each.place}\n        {each.text}{advice}\n")
