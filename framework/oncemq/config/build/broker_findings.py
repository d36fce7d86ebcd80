"""Reports findings of a check against a real broker at the consumer's line in the file."""

from collections.abc import Iterator

from oncemq.common.problems import Problem
from oncemq.config.build.consumer import note_all
from oncemq.config.build.plan import LoadedApp
from oncemq.config.build.shared_parts import Reporter
from oncemq.config.model.consumer_settings import parse_where
from oncemq.config.source.problems import Problems
from oncemq.contracts.broker_queries import ExaminingAdapter, PublishingExaminer
from oncemq.errors import OnceMQError


def examined(
    loaded: LoadedApp, broker: str, adapter: ExaminingAdapter, problems: Problems
) -> Iterator[OnceMQError]:
    """Record the findings for each consumer of a broker; yields why a consumer could not be checked.

    Args:
        loaded: the app.
        broker: its name in the app.
        adapter: connected to it.
        problems: the collection to add to.
    """
    report = Reporter(loaded.tree, problems)
    for settled, facts in zip(loaded.consumers, loaded.facts, strict=True):
        if settled.broker != broker:
            continue
        try:
            note_all(adapter.examine(facts), settled, report)
        except OnceMQError as error:
            yield error


def examined_topics(
    loaded: LoadedApp, broker: str, adapter: PublishingExaminer, problems: Problems
) -> Iterator[OnceMQError]:
    """Record the findings for each topic of a broker that no consumer of the app has; yields why one could not be checked.

    Args:
        loaded: the app.
        broker: its name in the app.
        adapter: connected to it.
        problems: the collection to add to.
    """
    report = Reporter(loaded.tree, problems)
    consumed = {settled.topic for settled in loaded.consumers}
    for name, topic in loaded.plan.topics.items():
        if topic.broker != broker or name in consumed:
            continue
        try:
            for problem in adapter.examine_publishing(name, topic.options):
                text = f"topic {name}: {problem.text}"
                where = ("topics", name, *parse_where(problem.where))
                report.note(where, Problem(text, problem.advice, problem.where, problem.severity))
        except OnceMQError as error:
            yield error
