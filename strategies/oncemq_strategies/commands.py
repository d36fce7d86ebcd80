"""The commands that strategies bring, as a table: what they need is imported when one is called."""

from oncemq.cli.lazy import Command, LazyGroup

locks = LazyGroup(
    name="locks",
    help="List the locks in Redis, or take one away from its holder.",
    table={
        "list": Command("oncemq_strategies.redisson.command:list_locks", "List the locks that are held."),
        "release": Command("oncemq_strategies.redisson.command:release", "Take a lock away from its holder."),
    },
)
