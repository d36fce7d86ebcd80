"""Builds the strategies of a consumer."""

from typing import TYPE_CHECKING, Any

from oncemq.common.error_text import describe
from oncemq.common.problems import Problem
from oncemq.config.build.importing import import_object
from oncemq.config.build.shared_parts import written
from oncemq.config.model.consumer_settings import ConsumerSettings
from oncemq.config.model.fields import WrongValue, reference
from oncemq.contracts.publisher import Publishers
from oncemq.contracts.strategy import Scope, Strategy
from oncemq.errors import ConfigError, OnceMQError
from oncemq.message.expressions import compile_expression

if TYPE_CHECKING:
    pass
from oncemq.config.build.consumers.context import BuildContext


def build_chain(
    settled: ConsumerSettings, around: BuildContext, publishers: Publishers
) -> list[Strategy] | None:
    """Return None if a strategy could not be built; all are tried, so that all problems are reported at once."""
    chain: list[Strategy] = []
    complete = True
    scope = _scope(settled, around, publishers)
    for index, choice in enumerate(settled.strategies):
        path = settled.path(f"strategies[{index}]")
        try:
            strategy = around.catalog.strategies.get(choice.name)
            if around.dialect and around.engine is None:
                complete = False
                continue
            built = strategy.build(written(choice.options), scope)
            built.name = choice.name
            chain.append(built)
        except ConfigError as error:
            around.report.error((*path, choice.name), error)
            complete = False
        except (OnceMQError, WrongValue, ValueError) as error:
            around.report.error(path, error)
            complete = False
        except Exception as error:
            around.report.at(path, f"strategy {choice.name} cannot be made: {describe(error)}")
            complete = False
    return chain if complete else None


def _scope(settled: ConsumerSettings, around: BuildContext, publishers: Publishers) -> Scope:
    def import_for_strategy(name: str) -> Any:
        try:
            return import_object(reference(name), around.folder)
        except WrongValue as error:
            problem = ConfigError([Problem(str(error), error.advice)])
        raise problem

    return Scope(
        app=around.app,
        consumer=f"{around.app}.{settled.ledger_name}",
        dialect=around.dialect,
        engine=around.engine,
        metadata=around.metadata,
        redis=around.redis,
        clock=around.clock,
        keep=settled.keep,
        retry_horizon=settled.retry.horizon(),
        expression=compile_expression,
        import_object=import_for_strategy,
        publishers=publishers,
        generations=around.generations and not settled.instance,
    )
