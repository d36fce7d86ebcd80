"""Options of every command that changes something: who does it, and why; both go into the audit trail."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from oncemq.operate.auditing import Operator


def signed(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--by` and `--why`, which the command gets as one argument `operator`."""

    @wraps(command)
    def with_operator(*arguments: Any, by: str | None, why: str, **others: Any) -> Any:
        operator = Operator(by, why) if by else Operator(why=why)
        return command(*arguments, operator=operator, **others)

    by = click.option("--by", metavar="NAME", help="Who does it.  [default: the user of this shell]")
    why = click.option("--why", default="", metavar="TEXT", help="The reason, for those who see it later.")
    return why(by(with_operator))
