"""How a member leaves its group: so that no broker takes the process that is gone for one that lives."""

from typing import Any

from oncemq.errors import BrokerUnavailable
from oncemq_adapters.rocketmq.address import parse_address
from oncemq_adapters.rocketmq.native.member import Member


class Story:
    """A session, the brokers and a connection, each writing down what happens to it."""

    def __init__(self, *, answers: bool = True, cut: bool = False) -> None:
        self.told: list[str] = []
        self._answers = answers
        self._cut = cut

    @property
    def session(self) -> Any:
        """The session."""
        story = self

        class Session:
            alive = True

            def freeze(self) -> None:
                story.told.append("frozen")

            def end(self) -> None:
                story.told.append("ended")

        return Session()

    def alive(self) -> dict[str, Any]:
        """Return the connections."""
        return {} if self._cut else {"b": self}

    def get(self, name: str) -> Any:
        """Return a connection, made again where it was cut."""
        assert name == "b"
        return self

    def call(self, *_: Any) -> None:
        """Answer a heartbeat."""
        self.told.append("heard")
        if not self._answers:
            raise BrokerUnavailable("it did not answer")


def left(story: Story) -> list[str]:
    """Return what happens when a member leaves."""
    member = Member(parse_address("rocketmq://localhost", {}), "g", [], {}, "", 1, lambda *_: ())
    brokers: Any = story
    member._brokers = brokers
    member._names = {"b"}
    member._end(story.session)
    return story.told


def test_brokers_have_read_everything_before_the_process_is_gone() -> None:
    """A heartbeat that is handled after its connection has ended would make it a member for two minutes."""
    assert left(Story()) == ["frozen", *["heard"] * 5, "ended"]


def test_brokers_are_asked_on_new_connections_where_the_old_ones_were_cut() -> None:
    """The library makes its connections again at once, and what it says on them must be read before it is gone."""
    assert left(Story(cut=True)) == ["frozen", *["heard"] * 5, "ended"]


def test_a_broker_that_does_not_answer_holds_up_no_other() -> None:
    """The process is ended all the same."""
    assert left(Story(answers=False))[-1] == "ended"
