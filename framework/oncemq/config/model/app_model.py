"""Sections, fields and defaults of an app's YAML, with their descriptions."""

from typing import Annotated

from pydantic import ConfigDict, Field, PlainValidator, WithJsonSchema

from oncemq.config.model.accepts_section import AcceptsField
from oncemq.config.model.breakers import Breakers
from oncemq.config.model.claim_section import ClaimCheckSection
from oncemq.config.model.expires import ExpiresField
from oncemq.config.model.fields import (
    VARIABLE,
    Count,
    Duration,
    Folder,
    Middlewares,
    Name,
    Names,
    Reference,
    SecretText,
    Text,
    TopicsField,
    Url,
    Workers,
    one_of,
)
from oncemq.config.model.process_sections import Http, Logging, Recycle, Redis, Tracing
from oncemq.config.model.rate_field import RateField
from oncemq.config.model.routes_section import RoutesField
from oncemq.config.model.schemas_section import BodyVersionField, CompatibilityLevel, SchemasField
from oncemq.config.model.section import OpenSection, Section
from oncemq.config.model.shared_sections import (
    AskedDelay,
    Concurrency,
    Meaning,
    OnDeadField,
    Retry,
    words,
)
from oncemq.config.model.strategy_list import StrategyList

EffectsName = Annotated[str, PlainValidator(one_of("database", "external")), words("database", "external")]
OnRetry = Annotated[str, PlainValidator(one_of("go_on", "hold_key")), words("go_on", "hold_key")]
_UNROUTABLE = ("wait", "drop", "dead_letter")
Unroutable = Annotated[str, PlainValidator(one_of(*_UNROUTABLE)), words(*_UNROUTABLE)]
BROADCAST = "broadcast"
Mode = Annotated[str, PlainValidator(one_of("share", BROADCAST)), words("share", BROADCAST)]
_DELAYED_BY = ("outbox", "broker")
DelayedBy = Annotated[str, PlainValidator(one_of(*_DELAYED_BY)), words(*_DELAYED_BY)]

ByName = Annotated[
    str, PlainValidator(one_of("key")), WithJsonSchema({"anyOf": [{"enum": ["key"]}, VARIABLE]})
]


class Limits(Section):
    """Time limits of a handler."""

    soft: Duration | None = Field(
        None,
        description="After this a database handler's statement is cancelled and it is rolled back, an `async def` handler is cancelled; "
        "an attempt counts. Python code between statements is not interrupted; a function with external effects is only logged.",
        examples=["20s"],
    )
    hard: Duration | None = Field(
        None,
        description="After this the process exits with code 70 and the message is a suspect; `oncemq run` starts another process.",
        examples=["60s"],
    )


class Batch(Section):
    """How many messages may share one transaction, and when a handler of a `Batch` is called."""

    limit: Count | None = Field(
        None,
        description="The most messages in one unit; fewer when the time budget says so. Default 500.",
        examples=[100],
    )
    within: Duration | None = Field(
        None,
        description="How long a message waits for others of its batch at most, until there are `limit`. Default: not at all.",
        examples=["2s"],
    )
    by: Text | None = Field(
        None,
        description="The expression of the value that all messages of a batch have. Default: they may have any.",
        examples=["body.tenant"],
    )


class ConsumerOptions(Section):
    """Options of a consumer, and `defaults` for all of them."""

    effects: EffectsName | None = Field(
        None,
        description="Where the handler's effects live: `database` (its Session, one transaction with the dedup "
        "record) or `external` (mail, HTTP …; each message on its own). Default: `database` if the app has one.",
        examples=["database"],
    )
    strategies: StrategyList | None = Field(
        None, description="How the handler is made idempotent, in order.", examples=[["unique_key"]]
    )
    workers: Workers | None = Field(
        None,
        description="Threads (or tasks of an async handler). Default auto: 1 for `database`, 32 for `external`.",
        examples=["auto", 8],
    )
    unit_time: Duration | None = Field(
        None, description="How long a transaction should last, about. Default 50ms.", examples=["50ms"]
    )
    batch: Batch | None = Field(None, description="How many messages may share a transaction.")
    reply: bool | None = Field(
        None,
        description="The handler's result answers a message that asks for an answer (RabbitMQ: `reply_to`; RocketMQ: "
        "Java's `producer.request`). Default false. "
        "Needs `unique_key: {result: true}`.",
        examples=[True],
    )
    isolate: bool | None = Field(
        None,
        description="true: each call of the handler has a transaction of its own, on a connection that is reset behind it. "
        "For handlers whose settings cannot be seen, such as those made inside SQL functions. Default false.",
        examples=[True],
    )
    retry: Retry | None = Field(None, description="Attempts and pauses.")
    on_retry: OnRetry | None = Field(
        None,
        description="While a message is tried again, later ones of its key wait (`hold_key`, the default with `state_machine`, "
        "`optimistic_lock` and `sequence`) or `go_on` (the default of others).",
        examples=["hold_key"],
    )
    expires: ExpiresField | None = Field(
        None,
        description="A message that is too old does not run: a duration since it was published, or the expression of its deadline.",
        examples=["10m", "headers.deadline"],
    )
    asked_delay: AskedDelay | None = Field(
        None,
        description="Where producers may ask for a delay of a message. Default: they have no say.",
        examples=[{"by": "headers.delay", "limit": "1h"}],
    )
    on_dead: OnDeadField | None = Field(
        None,
        description="Your function, as `module:name`, that runs once when a message has finally failed, in a transaction of its own: "
        "to undo, to tell someone. Needs `unique_key` or `tiered`. Or `hold_key`: after a dead letter the later messages of its key "
        "wait in the ledger until a person replays or purges it.",
        examples=["orders:compensate", "hold_key", {"hold_key": True, "most": 1000}],
    )
    keep: Duration | None = Field(
        None,
        description="How long it is remembered that a message was applied; longer than it can come again. Default 7d.",
        examples=["7d"],
    )
    limits: Limits | None = Field(None, description="Time limits of the handler. Default: none.")
    breakers: Breakers | None = Field(
        None,
        description="Shares of duplicates, of failures or of one key above which it warns, slows down or pauses. Default: none.",
    )
    rate: RateField | None = Field(
        None,
        description="The most messages that it takes in a second, minute or hour. Default: as many as there are.",
        examples=["200/s", {"limit": "30/m", "shared": True}],
    )
    concurrency: Concurrency | None = Field(
        None,
        description="How many messages with the same value, such as a merchant, each process works on at once. Default: as many as "
        "there are.",
        examples=[{"by": "body.merchant", "limit": 10}],
    )
    in_flight: Count | None = Field(
        None, description="How many messages may be received and unsettled at once. Default 1000."
    )


class Defaults(ConsumerOptions):
    """Defaults for every consumer."""


class Consumer(ConsumerOptions, Meaning):
    """A handler and the topic whose messages it receives."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                {"oneOf": [{"required": ["handler"]}, {"required": ["routes"]}]},
                {"oneOf": [{"required": ["topic"]}, {"required": ["topics"]}]},
            ]
        }
    )

    topic: Text | None = Field(
        None,
        description="The name of a topic below `topics`. Instead of it, for several: `topics`.",
        examples=["order.paid"],
    )
    topics: TopicsField | None = Field(
        None,
        description="Several topics, also of different brokers, instead of `topic`: a message that arrives by two of them takes "
        "effect once. As a mapping: the group by topic.",
        examples=[["orders", "orders_legacy"], {"orders": "loyalty", "orders_legacy": None}],
    )
    handler: Reference | None = Field(
        None,
        description="Your function, as `module:name`. Instead of it: `routes`.",
        examples=["handlers:award_points"],
    )
    routes: RoutesField | None = Field(
        None,
        description="Handlers by a value in the message, such as its event type, instead of `handler`.",
        examples=[{"by": "headers.event_type", "order.paid": "handlers:paid"}],
    )
    accepts: AcceptsField | None = Field(
        None,
        description="The versions of payloads that the handler takes, and functions that bring older ones to the newest.",
        examples=[
            {"version": "headers.schema-version", "versions": [1, 2], "upcasters": {"1": "upcasters:to_v2"}}
        ],
    )
    group: Text | None = Field(
        None,
        description="Members with the same group share the messages, every group gets all. Default `app-consumer`.",
        examples=["loyalty"],
    )
    mode: Mode | None = Field(
        None,
        description="`share` (default) or `broadcast`: every `instance:` of the app gets every message. RocketMQ (`rocketmq://`).",
    )
    formerly: Names | None = Field(
        None,
        description="The consumer's former name, or names, the first one first: it keeps the records, parked messages, "
        "claims, retries, dead letters, queues and, unless group: says otherwise, the group of that name. It stays in the file permanently.",
        examples=["award-points"],
    )
    publishes: Names | None = Field(
        None,
        description="The topics to which the handler's Publisher may publish, checked at start. Default: all topics.",
        examples=[["order.shipped"]],
    )
    middlewares: Middlewares | None = Field(
        None,
        description="Classes of yours around each call of the handler, after its commits and at its publishing, as `module:Class`, "
        "outermost first; those of the app are around them.",
        examples=[["audit:AuditRow"]],
    )

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Return its topics, one or several, in order."""
        if self.topics is not None:
            return tuple(self.topics)
        return () if self.topic is None else (self.topic,)


class Broker(OpenSection):
    """A message broker; other options are passed to its adapter."""

    url: Url = Field(
        description="Where it is; its scheme chooses the adapter.", examples=["amqp://localhost:5672/"]
    )
    username: Text | None = Field(None, description="Instead of in the URL.")
    password: SecretText | None = Field(
        None, description="Instead of in the URL.", examples=["${RABBITMQ_PASSWORD}"]
    )
    history_key: SecretText | None = Field(
        None,
        description="Signs what messages carry of their tries, for brokers where others may write to the group's own queues; "
        "16 characters or more, the same in all processes. Claims without a valid signature are ignored. Default: none.",
        examples=["${HISTORY_KEY}"],
    )
    history_key_before: SecretText | None = Field(
        None,
        description="The earlier `history_key` while it is being replaced: its signatures are accepted, too.",
        examples=["${HISTORY_KEY_BEFORE}"],
    )


class Topic(OpenSection, Meaning):
    """A topic and its messages; other options (`queue`, `exchange` …) are passed to the broker's adapter."""

    # With several bases, pydantic takes the settings of the last.
    model_config = ConfigDict(extra="allow")

    broker: Text | None = Field(
        None, description="The name of a broker below `brokers`. Default: the only one.", examples=["shop"]
    )
    strategies: StrategyList | None = Field(
        None, description="The strategies of its consumers.", examples=[["unique_key"]]
    )
    unroutable: Unroutable | None = Field(
        None,
        description="What becomes of a published message for which the broker has no queue or topic: `wait` (tried again, "
        "later messages of its key wait for it; the default), `drop` (logged and counted), or `dead_letter` (kept for "
        "`oncemq outbox retry`; later messages of its key are sent).",
        examples=["dead_letter"],
    )
    delay_by: DelayedBy | None = Field(
        None,
        description="What holds a message back that is published with a delay: `outbox` (the app's database, so it can be "
        "cancelled and inspected; the default with a database), or `broker` (its own exact timer, on RocketMQ and the "
        "embedded broker; it cannot be cancelled).",
        examples=["broker"],
    )
    claim_check: ClaimCheckSection | None = Field(
        None,
        description="Bodies above a size lie in a store, and messages refer to them. Default: every body is in its message.",
        examples=[{"store": "s3://our-bodies/orders", "over": "256KiB"}],
    )
    compatibility: CompatibilityLevel | None = Field(
        None,
        description="What a new version of its schema must keep to, below `schemas:`: `backward` (new consumers read old bodies), "
        "`forward`, `full`, each also with `_transitive`, or `none`. Default: that of `schemas:`.",
        examples=["full"],
    )
    body_version: BodyVersionField | None = Field(
        None,
        description="Where a message has the version of its body, against whose schema below `schemas:` the body is checked: an "
        "expression, one number for all messages, or the ids that a schema registry's clients write. Default: bodies are checked "
        "where a consumer `accepts` versions.",
        examples=["headers.schema-version", {"registry_ids": {1: 100001, 2: 100007}}],
    )


class Database(Section):
    """The database of handlers and ledger: one by `url`, or several that share the keys by `shards`."""

    url: Url | None = Field(
        None,
        description="As SQLAlchemy writes it.",
        examples=["postgresql+psycopg://localhost/loyalty", "sqlite:///loyalty.db"],
    )
    shards: list[Url] | None = Field(
        None,
        description="The URLs of a sharded database, in an order that never changes. A key and everything about it is "
        "on one of them, by a stable hash; every one has the ledger and your tables.",
        examples=[["postgresql://db1/loyalty", "postgresql://db2/loyalty"]],
    )
    by: ByName | None = Field(
        None,
        description="What decides about the shard: `key`, the business key of a message.",
        examples=["key"],
    )
    slots: list[Text] | None = Field(
        None,
        description="For each shard its slots of 1024, where they shall not be dealt out evenly. To be changed only "
        "after the rows have been moved.",
        examples=[["0-511", "512-1023"]],
    )
    username: Text | None = Field(None, description="Instead of in the URL.")
    password: SecretText | None = Field(
        None, description="Instead of in the URL.", examples=["${DB_PASSWORD}"]
    )
    pool_size: Count | None = Field(
        None,
        description="Connections that a process keeps; while all are busy, as many again. Default: what its workers "
        "need, at least 10.",
    )


class Ledger(Section):
    """How the ledger keeps the records of applied messages."""

    generations: Duration | None = Field(
        None,
        description="A table for each consumer and period of this length, which expires as a whole; smaller than one table for "
        "all, whose rows are deleted one by one. PostgreSQL only. Default: one table.",
        examples=["1d"],
    )


class AppModel(Section):
    """A whole OnceMQ app."""

    app: Name = Field(
        description="The app's name; part of groups and of every ledger row.", examples=["loyalty"]
    )
    brokers: dict[str, Broker] = Field(min_length=1, description="Message brokers, by a name of your choice.")
    database: Database | None = Field(None, description="The database of handlers and ledger.")
    ledger: Ledger | None = Field(None, description="How the records of applied messages are kept.")
    redis: Redis | None = Field(None, description="The Redis of locks, marks and flags.")
    defaults: Defaults | None = Field(None, description="What every consumer has unless it says otherwise.")
    topics: dict[str, Topic] = Field(
        default_factory=dict, description="What a topic's messages are, by its name."
    )
    consumers: dict[str, Consumer] = Field(
        default_factory=dict, description="Handlers and their topics, by a name."
    )
    middlewares: Middlewares | None = Field(
        None,
        description="Classes of yours around each handler's calls, after their commits and at each publishing, as `module:Class`, "
        "outermost first.",
        examples=[["tenants:Tenant"]],
    )
    schemas: SchemasField | None = Field(
        None, description="Versions of payload schemas, or the folder of their files. Default: none."
    )
    http: Http | None = Field(None, description="Metrics and health. Default: off.")
    logging: Logging | None = Field(None, description="What is logged and how it looks.")
    tracing: Tracing | None = Field(None, description="OpenTelemetry traces. Default: off.")
    processes: Count = Field(1, description="How many processes `oncemq run` starts; `App.run()` is one.")
    recycle: Recycle | None = Field(
        None,
        description="When a worker process is replaced by a new one; one at a time. Default: never.",
        examples=[{"after_messages": 100000, "above_memory": "1GiB", "every": "24h"}],
    )
    instance: Text | None = Field(
        None, description="This instance's name, for `mode: broadcast`.", examples=["${HOSTNAME}"]
    )
    state: Folder | None = Field(
        None,
        description="Folder for flight recorders, relative to the file. Default .oncemq.",
        examples=[".oncemq"],
    )
    grace: Duration | None = Field(
        None, description="How long a stop may take in all; of 30s, running handlers have 27s. Default 30s."
    )
