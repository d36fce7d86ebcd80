"""An app on the embedded broker and SQLite in a folder of its own, and a way to run commands on it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import click
from click.testing import CliRunner, Result

from oncemq.cli.main import main
from oncemq.config import load
from oncemq.contracts.adapter import DeadLetterRequest
from oncemq.engine.plan import AppPlan
from oncemq.ledger import schema
from oncemq.message import headers as names
from oncemq.message.envelope import OutgoingMessage
from oncemq.testing.recording_sink import RecordingSink

APP = """
app: loyalty
brokers:
  shop: {{url: "embedded:///{folder}/broker.db"}}
database: {{url: "sqlite:///{folder}/shop.db"}}
topics:
  order.paid: {{key: body.order_id, strategies: [unique_key]}}
  notes: {{format: text, key: "keys[0]", strategies: [unique_key]}}
  free: {{}}
consumers:
  award: {{topic: order.paid, handler: "handlers:award"}}
  mail: {{topic: order.paid, handler: "handlers:award"}}
"""
HANDLERS = '''
from sqlalchemy.orm import Session


def award(order: dict, session: Session) -> None:
    """Do nothing."""
'''


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def _program(arguments: tuple[str, ...]) -> None:
    """Run the whole program, so that its own handling of errors is part of what is tested."""
    main(arguments)


def run_program(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """Run `oncemq` with these arguments in this process, exit code and error message included."""
    return CliRunner().invoke(_program, list(arguments), input=stdin)


class CommandLine:
    """An app in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.app = folder / "app.yaml"
        self.app.write_text(APP.format(folder=folder))
        (folder / "handlers.py").write_text(HANDLERS)

    def write(self, name: str, *lines: str) -> str:
        """Write a file of lines; returns its path."""
        path = self.folder / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    def run(self, *arguments: str, stdin: str | bytes | None = None) -> Result:
        """Run `oncemq -f app.yaml` with these arguments, exit code and error message included."""
        return run_program("-f", str(self.app), *arguments, stdin=stdin)

    @contextmanager
    def plan(self) -> Iterator[AppPlan]:
        """Lend the app as the engine would get it."""
        plan = load([self.app]).plan
        try:
            yield plan
        finally:
            for adapter in plan.adapters.values():
                adapter.close(grace=timedelta(seconds=5))
            if plan.engine is not None:
                plan.engine.dispose()

    def create_tables(self) -> None:
        """Create the ledger."""
        with self.plan() as plan:
            schema.create(plan.engine)

    def received(self, count: int, consumer: str = "award") -> list[OutgoingMessage]:
        """Return what `consumer` receives; the deliveries go back."""
        with self.plan() as plan:
            sink = RecordingSink()
            plan.adapters["shop"].open([consumer.subscription for consumer in plan.consumers], sink)
            return [delivery.message for delivery in sink.wait_for(count, consumer=consumer)]

    def waiting(self, consumer: str = "award") -> int | None:
        """Return how many messages wait for `consumer`."""
        with self.plan() as plan:
            adapter = plan.adapters["shop"]
            adapter.prepare([consumer.subscription for consumer in plan.consumers])
            return adapter.depth(
                next(configured.subscription for configured in plan.consumers if configured.name == consumer)
            )

    def publish_dead_letters(self, *bodies: bytes, consumer: str = "award", **headers: str) -> None:
        """Publish messages and dead-letter those of `consumer`, with our headers given by their constants' names."""
        with self.plan() as plan:
            adapter, sink = plan.adapters["shop"], RecordingSink()
            adapter.open([consumer.subscription for consumer in plan.consumers], sink)
            adapter.publish("order.paid", {}, [OutgoingMessage(body, message_id="m-1") for body in bodies])
            added = {getattr(names, name): text for name, text in headers.items()}
            others = {consumer.name for consumer in plan.consumers} - {consumer}
            adapter.dead_letter(
                [
                    DeadLetterRequest(delivery, added)
                    for delivery in sink.wait_for(len(bodies), consumer=consumer)
                ]
            )
            for other in others:
                adapter.acknowledge(sink.wait_for(len(bodies), consumer=other))

    def dead_letters(self, consumer: str = "award") -> list[tuple[str, str, str, int]]:
        """Return id, key, reason and attempts of what `dead-letters list` prints."""
        result = self.run("dead-letters", "list", consumer, "--json")
        assert result.exit_code == 0, result.output
        return [
            (row["id"], row["key"], row["reason"], row["attempts"])
            for row in map(json.loads, result.stdout.splitlines())
        ]
