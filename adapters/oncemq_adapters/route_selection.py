"""Has a broker select the messages of a consumer's routes: `otherwise: unsubscribed`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oncemq.common.problems import Problem
from oncemq.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RouteSelection:
    """How the brokers of one kind select messages.

    Args:
        broker: the kind, for people.
        what: by what they select, such as `tag`.
        by: the expression of that.
        option: the topic's option that gets the values of the routes.
        taken: topic options beside which the routes cannot be subscribed to, with what they say of the subscription.
        unfit: returns why a value cannot be selected, and what to write instead; None if it can.
    """

    broker: str
    what: str
    by: str
    option: str
    taken: Mapping[str, str]
    unfit: Callable[[str], tuple[str, str] | None]

    def options(self, by: str, values: Sequence[str], options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a topic's options with the values of routes.

        Args:
            by: the expression of the routes.
            values: of the routes.
            options: of the topic, as written.

        Raises:
            ConfigError: the routes are by something else, a value cannot be selected, or an option contradicts them.
        """
        problems = []
        if by.strip() != self.by:
            problems.append(
                Problem(
                    f"{self.broker} selects messages by their {self.what}, not by {by}: a consumer cannot subscribe to such routes alone",
                    f"write by: {self.by}, or otherwise: ignore",
                    "routes.by",
                )
            )
        problems += (
            Problem(
                f"with otherwise: unsubscribed {said}",
                f"leave {name} out, or write otherwise: reject",
                f"topic.{name}",
            )
            for name, said in self.taken.items()
            if options.get(name)
        )
        problems += (
            Problem(f"the route {value!r} {why[0]}", why[1], "routes")
            for value in values
            if (why := self.unfit(value)) is not None
        )
        if problems:
            raise ConfigError(problems)
        return {**options, self.option: list(values)}
