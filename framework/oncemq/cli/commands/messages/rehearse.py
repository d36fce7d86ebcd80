"""The command `rehearse`: shows what another configuration makes of recorded traffic."""

from collections.abc import Sequence
from pathlib import Path

import click

from oncemq.cli.exit_codes import FAILED, OK
from oncemq.cli.files import app_option
from oncemq.cli.output import Output, json_option
from oncemq.rehearsal.recording_file import read_recording
from oncemq.rehearsal.report import changes_of, lines_of, record_of
from oncemq.rehearsal.run import rehearse as run_rehearsal
from oncemq.rehearsal.scratch_app import new_app
from oncemq.rehearsal.stories import stories_of


@click.command("rehearse", short_help="Show what another configuration makes of a recording.")
@click.argument("recording", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--consumer", metavar="NAME", help="Which consumer of the new configuration. Default: the recorded one."
)
@click.option(
    "--database",
    metavar="URL",
    help="A server on which a schema or database is created for the rehearsal, and dropped. Default: SQLite.",
)
@json_option
@app_option
def rehearse(
    recording: Path, consumer: str | None, database: str | None, files: Sequence[Path], *, as_json: bool
) -> int:
    """Run RECORDING, a file of `oncemq record`, through the strategies of another configuration.

    Engine and strategies are real; broker and database are of the rehearsal alone, and gone after it. Handlers do not run:
    each message gets from its handler what it got when it was recorded. Neither the brokers, the database nor the Redis of
    the configuration are connected to, and no module of yours is imported.

    Exit code 1: messages would end differently, or records from before the change do not protect.
    """
    recorded = read_recording(recording)
    stories = stories_of(recorded.arrivals)
    topic = str(recorded.header["declared"].get("topic", ""))
    new = new_app(files, consumer, topic, str(recorded.header["consumer"]))
    found = run_rehearsal(recorded, stories, new, database)
    changes = changes_of(found)
    output = Output(as_json=as_json)
    output.record(record_of(found, changes, new.left_out))
    for line in lines_of(found, changes, new.left_out):
        output.line(line)
    return FAILED if changes or found.protection.problems else OK
