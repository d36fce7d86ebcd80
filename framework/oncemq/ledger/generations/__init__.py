"""Records of applied messages in generations: a table for each consumer and period, which expires as a whole.

With `ledger: {generations: 1d}` a consumer's records go to its open generation, the table `oncemq_processed_<number>`; the
table `oncemq_generations` lists them. A message is new if no live generation has its identity. After the period
a rotation seals the open generation and opens the next; when every record of a sealed one is older than `keep`, it is retired
(no longer looked up), and a minute later its table is dropped.

Why native tables, not partitions: a unique index of a partitioned table must contain the partition key, so the same
identity could be inserted into two partitions, and each insert would need the barrier below anyway; DETACH CONCURRENTLY cannot
run in a transaction, and DROP of a partition locks its parent, which every consumer uses. No unit locks a table of its own
that is retired.

Why a rotation lets no duplicate through. A unit inserts with one statement S, which names the open generation G as its
target, looks up all older ones, and inserts nothing unless `oncemq_generations` says that G is open. PostgreSQL locks the tables
that a statement names before it takes the snapshot that the statement reads by (READ COMMITTED), and keeps the lock until
the transaction ends. An insert locks G in mode ROW EXCLUSIVE; a rotation locks it in SHARE ROW EXCLUSIVE, which conflicts, then
seals G, opens the next and commits. So for each unit and each rotation one of two holds:

1. The unit has its lock first. Then the rotation waits for the end of the unit's transaction: the unit's records are
   committed, or gone, before the rotation commits.
2. The rotation has its lock first. Then S waits for the rotation's commit, and takes its snapshot afterwards: S sees that
   G is sealed and inserts nothing. The process reads the list again and asks with the new one.

Hence nothing is inserted into G after its rotation has committed, and all that G will ever hold is committed by then. A unit that
inserts into the next generation saw it open, so its snapshot is later than that commit, and it sees every record of G. Two
units that insert into the same generation meet in its unique index. By induction no identity is in two generations.

The same argument covers the step from the old table: it becomes the oldest generation, sealed from the beginning. `begin` puts a trigger on
it, for which PostgreSQL takes the same lock, and which refuses inserts for this consumer from then on: a process that runs
without the option, or an earlier OnceMQ, stops with an error in words instead of applying messages twice.

What a stale list can do: it may name tables that were retired since, which only looks up more; if one was dropped, the statement
fails, and the unit runs again with a new list. A process reads its list again after ten seconds, and a table is dropped a minute
after it was retired, so this happens only to a process that was stopped in between.

Everything that a step changes is in one transaction: a process that dies in it leaves nothing behind, and another repeats it. Two processes
that rotate at the same moment lock the row of the open generation first; the second finds it sealed and does nothing. The partial unique index of
`oncemq_generations` allows one open generation a consumer, whatever else happens.
"""
