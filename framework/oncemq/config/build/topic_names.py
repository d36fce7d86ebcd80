"""Names at a topic that are ours misspelt, or stand at the wrong place; other names are the adapter's options."""

from difflib import get_close_matches

from oncemq.config.build.shared_parts import Reporter
from oncemq.config.model.app_model import Consumer, Topic
from oncemq.config.model.foreign_names import answer
from oncemq.config.model.validate import field_names

_ALIKE = 0.75


def check_topic_names(name: str, topic: Topic, report: Reporter) -> None:
    """Report options of the topic `name` that cannot have been meant for the adapter."""
    elsewhere = set(field_names(Consumer)) - set(field_names(Topic))
    for option in topic.options:
        path = ("topics", name, option)
        close = get_close_matches(option, field_names(Topic), n=1, cutoff=_ALIKE)
        foreign = answer(option, "topics")
        if option in elsewhere:
            report.at_key(
                path, f"{option!r} belongs to a consumer", "write it at the consumer, or below defaults:"
            )
        elif foreign:
            report.at_key(path, f"there is no {option!r} here", foreign)
        elif close:
            report.at_key(path, f"unknown name {option!r}", f"did you mean {close[0]!r}?")
