"""The command `dashboard`: serves the web page."""

import getpass
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oncemq.cli.exit_codes import OK
from oncemq.cli.files import app_option
from oncemq.config.model.fields import WrongValue, address
from oncemq.errors import ConfigError, MissingExtra
from oncemq.observe.endpoint import Address

if TYPE_CHECKING:
    from oncemq.dashboard.access import Access


def _address(_context: click.Context, _option: click.Parameter, value: str) -> Address:
    try:
        return address(value)
    except WrongValue as error:
        raise click.BadParameter(f"{error} – {error.advice}") from None


@click.command("dashboard", short_help="Serve a web page with all of this, live.")
@click.option(
    "--address",
    "where",
    default="127.0.0.1:8088",
    show_default=True,
    callback=_address,
    help="Where to listen. Another address than this machine's own needs --users or --user-header.",
)
@click.option("--allow-changes", is_flag=True, help="Allow to replay, delete, pause, retry, drop and answer.")
@click.option(
    "--users",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file of users, a line each as --new-user prints it; put TLS in front.",
)
@click.option("--user-header", metavar="NAME", help="A proxy says in this header who asks. Needs --proxy.")
@click.option(
    "--proxy", "proxies", multiple=True, metavar="NETWORK", help="Such as 10.0.0.0/8; may be repeated."
)
@click.option("--new-user", metavar="NAME", help="Ask for a password, print the line for --users, and end.")
@app_option
def dashboard(
    files: Sequence[Path],
    *,
    where: Address,
    allow_changes: bool,
    users: Path | None,
    user_header: str | None,
    proxies: Sequence[str],
    new_user: str | None,
) -> int:
    """Serve a page with the overview, each key's timeline, dead letters, what waits, the audit trail and the configuration.

    It reads the ledger, the brokers and Redis, so it works while all processes of the app are down. It is read only unless
    --allow-changes is given; each change is in the audit trail, with the user's name. It needs `pip install "oncemq[dashboard]"`.
    """
    try:
        import uvicorn  # noqa: PLC0415 - optional

        from oncemq.dashboard import create_app  # noqa: PLC0415 - optional
        from oncemq.dashboard.access import is_loopback, user_line  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"uvicorn", "starlette", "jinja2"}:
            raise
        raise MissingExtra('the page needs a web server: pip install "oncemq[dashboard]"') from None
    if new_user is not None:
        click.echo(user_line(new_user, getpass.getpass("password: ")))
        return OK
    access = _access(users, user_header, proxies)
    if access is None and not is_loopback(where.host):
        problem = f"--address {where} is reached from other machines, and nothing says who may see the page"
        raise ConfigError([f"{problem} – add --users FILE, or --user-header NAME and --proxy NETWORK"])
    page = create_app(list(files), access=access, allow_changes=allow_changes)
    click.echo(f"http://{where}/ – Ctrl-C ends", err=True)
    # The server drains, and then sends itself the signal again: by then it has no further meaning.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    uvicorn.run(
        page,
        host=where.host,
        port=where.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    return OK


def _access(users: Path | None, header: str | None, proxies: Sequence[str]) -> "Access | None":
    from oncemq.dashboard.access import ProxyHeader, Users  # noqa: PLC0415 - optional

    if users is not None and header is not None:
        raise click.UsageError("--users or --user-header, not both")
    if (header is None) != (not proxies):
        raise click.UsageError("--user-header and --proxy belong together")
    if users is not None:
        return Users(users)
    return ProxyHeader(header, proxies) if header is not None else None
