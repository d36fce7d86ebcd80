"""The dead letters of RabbitMQ, looked after on a real server: true counts, bounded memory, and nothing moved by a look."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oncemq.contracts.adapter import Subscription
from oncemq.errors import BrokerError
from oncemq.operate.auditing import NO_LEDGER
from oncemq_adapters.rabbitmq.adapter import RabbitMQAdapter
from support.apps.program import eventually
from support.brokers.rabbitmq import adapter_on, connect

APP = """
app: loyalty
brokers: {{shop: {{url: "{url}"}}}}
topics: {{"{topic}": {{key: "keys[0]"}}}}
consumers: {{points: {{topic: "{topic}", group: "{group}", handler: "handlers:award", effects: external, strategies: [none]}}}}
"""
HANDLERS = '''
def award(order: dict) -> None:
    """Do nothing."""
'''
HALF_READ = """
import sys
from oncemq.contracts.adapter import Subscription
from support.brokers.rabbitmq import adapter_on

letters = adapter_on(sys.argv[1]).dead_letters(Subscription("points", sys.argv[2], sys.argv[3]), 1000)
next(letters), next(letters)
print("looking", flush=True)
sys.stdin.read()
"""


class Letters:
    """The dead letters of one group, and its app in a folder."""

    def __init__(self, url: str, fresh: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.subscription = Subscription("points", f"{fresh}.paid", f"{fresh}-group")
        self.queue = f"{fresh}-group.{fresh}.paid"
        self.adapter: RabbitMQAdapter = adapter_on(url)
        self.adapter.prepare([self.subscription])
        app = APP.format(url=url, topic=self.subscription.topic, group=self.subscription.group)
        (folder / "app.yaml").write_text(app)
        (folder / "handlers.py").write_text(HANDLERS)

    def put(self, *bodies: bytes) -> None:
        """Put letters into the queue, the way the broker itself does."""
        connection = connect(self.url)
        channel = connection.channel()
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", f"{self.queue}.dead", body)
        connection.close()

    def ready(self, queue: str | None = None) -> int:
        """Return how many lie ready in the queue of dead letters, or in another one."""
        connection = connect(self.url)
        found = connection.channel().queue_declare(queue or f"{self.queue}.dead", passive=True)
        connection.close()
        return int(found.method.message_count)

    def bodies(self) -> list[bytes]:
        """Return what lies there, in order."""
        return [letter.message.body for letter in self.adapter.dead_letters(self.subscription, 10_000)]

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `oncemq dead-letters` in a process of its own."""
        program = [sys.executable, "-m", "oncemq", "-f", "app.yaml", "dead-letters", *arguments]
        return subprocess.run(
            program, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture
def letters(rabbitmq_url: str, fresh: str, tmp_path: Path) -> Letters:
    """Return an empty queue of dead letters."""
    return Letters(rabbitmq_url, fresh, tmp_path)


def numbered(count: int) -> list[bytes]:
    """Return so many different bodies."""
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 40, 1000])
@pytest.mark.parametrize(("command", "done"), [("replay", "replayed"), ("purge", "purged")])
def test_all_letters_are_done_with_a_true_count(
    letters: Letters, command: str, done: str, count: int
) -> None:
    """`--all` ends with exit code 0, says how many there were and that nothing records it, and leaves none."""
    letters.put(*numbered(count))
    result = letters.command(command, "--all", "--json", *(["--yes"] if command == "purge" else []))
    assert (result.returncode, result.stderr) == (0, f"{NO_LEDGER}\n")
    assert json.loads(result.stdout) == {"consumer": "points", done: count}
    assert letters.ready() == 0
    assert letters.ready(letters.queue) == (count if command == "replay" else 0)


def test_a_listing_takes_only_what_is_read(letters: Letters) -> None:
    """While one letter is looked at, the others lie ready in the broker: nothing is collected."""
    letters.put(*numbered(300))
    listing = letters.adapter.dead_letters(letters.subscription, 10_000)
    assert next(listing).message.body == b"0"
    assert letters.ready() == 299
    listing.close()  # type: ignore[attr-defined] - a generator
    assert letters.bodies() == numbered(300)


def test_a_limited_list_takes_no_more_than_its_limit(letters: Letters) -> None:
    """`list --limit 1` shows the oldest, and everything lies where it was."""
    letters.put(*numbered(20))
    result = letters.command("list", "--limit", "1", "--json")
    assert (result.returncode, len(result.stdout.splitlines())) == (0, 1)
    assert letters.bodies() == numbered(20)


def test_a_killed_listing_leaves_the_queue_as_it_was(letters: Letters) -> None:
    """A process that dies while it looks holds no more than it has read, and moves and loses nothing."""
    letters.put(*numbered(2000))
    place = (letters.url, letters.subscription.topic, letters.subscription.group)
    with subprocess.Popen(
        [sys.executable, "-c", HALF_READ, *place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"looking\n"
        assert letters.ready() == 1998
        process.send_signal(signal.SIGKILL)
    eventually(lambda: letters.ready() == 2000, "all letters are back")
    assert letters.bodies() == numbered(2000)


def test_what_arrives_meanwhile_stays(letters: Letters) -> None:
    """Letters that came after the list was made are not purged, and not counted."""
    letters.put(*numbered(3))
    ids = [letter.id for letter in letters.adapter.dead_letters(letters.subscription, 10)]
    letters.put(b"later")
    assert letters.adapter.purge_dead_letters(letters.subscription, ids) == 3
    assert letters.bodies() == [b"later"]


def test_letters_that_are_alike_are_all_done(letters: Letters) -> None:
    """Two letters of the same content, put there by the broker, have one id; both are purged and counted."""
    letters.put(b"same", b"other", b"same")
    ids = [letter.id for letter in letters.adapter.dead_letters(letters.subscription, 10)]
    assert letters.adapter.purge_dead_letters(letters.subscription, ids) == 3
    assert letters.ready() == 0


def test_a_replay_that_fails_in_the_middle_keeps_the_rest(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be sent stays, in its place, with what lies behind it; its own error is what is raised."""
    letters.put(*numbered(5))
    ids = [letter.id for letter in letters.adapter.dead_letters(letters.subscription, 10)]
    sent: list[bytes] = []

    def send(publications: list) -> list[BrokerError | None]:
        sent.append(publications[0].body)
        return [BrokerError("full") if len(sent) == 3 else None]

    monkeypatch.setattr(letters.adapter, "_send_own", send)
    with pytest.raises(BrokerError, match="full"):
        letters.adapter.replay_dead_letters(letters.subscription, ids)
    assert letters.bodies() == numbered(5)[2:]
