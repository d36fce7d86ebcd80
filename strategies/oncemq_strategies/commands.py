"""Table of the commands that strategies add; their dependencies are imported when a command is called."""

from oncemq.cli.lazy import Command, LazyGroup

locks = LazyGroup(
    name="locks",
    help="List the locks in Redis, or take one away from its holder.",
    table={
        "list": Command("oncemq_strategies.redisson.command:list_locks", "List the locks that are held."),
        "release": Command("oncemq_strategies.redisson.command:release", "Take a lock away from its holder."),
    },
)
