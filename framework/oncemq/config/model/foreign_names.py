"""Option names of other frameworks, and their equivalents here."""

_RETRY = "write retry: {attempts: 6}, where the first try counts too"
_PAUSES = "write retry: {backoff: {first: 1s, factor: 4, max: 10m}}"
_LIMITS = "write limits: {soft: 20s, hard: 60s}"
_DEAD = "nothing to write: every group has dead letters of its own; see `oncemq dead-letters list`"
_ACK = "nothing to write: a message is acknowledged once its transaction has committed"
_DEDUP = "write strategies: [unique_key], and identity: for what makes two messages the same"
_QUEUE = "describe it below topics:, like my-topic: {queue: orders}"
_LOG = "write logging: {level: info}"
_HTTP = 'write http: {address: "127.0.0.1:9090"}'

_ANSWERS: tuple[tuple[str, str], ...] = (
    (
        "concurrency threads max_workers worker_count num_workers worker_concurrency pool",
        "write workers: auto",
    ),
    ("prefetch prefetch_count qos prefetch_multiplier max_in_flight max_pending", "write in_flight: 1000"),
    ("max_retries retries max_attempts tries attempts autoretry max_deliver max_delivery_attempts", _RETRY),
    (
        "retry_delay retry_backoff backoff min_backoff max_backoff default_retry_delay retry_interval delay",
        _PAUSES,
    ),
    (
        "time_limit soft_time_limit hard_time_limit timeout task_time_limit ack_wait visibility_timeout",
        _LIMITS,
    ),
    ("dlq dead_letter dead_letters dead_letter_queue dead_letter_exchange dlx error_queue", _DEAD),
    ("ack auto_ack no_ack ack_mode acks_late ack_policy acknowledge manual_ack", _ACK),
    ("dedup deduplicate deduplication idempotent idempotency idempotency_key unique dedupe", _DEDUP),
    ("ttl result_ttl retention expire expires dedup_ttl", "write keep: 7d"),
    ("batch_size max_batch max_batch_size max_records max_poll_records", "write batch: {limit: 500}"),
    ("batch_timeout batch_window max_wait linger receive_timeout", "write batch: {limit: 100, within: 2s}"),
    ("function func callback task actor target subscriber listener", "write handler: module:name"),
    ("topic_name channel subject stream", "write topic: and the name of a topic below topics:"),
    ("consumer_group group_id group_name subscription durable_name", "write group:"),
    ("strategy", "write strategies: [unique_key]"),
    ("middleware interceptors hooks filters plugins", "write middlewares: [module:Class]"),
    ("queue queue_name queues", _QUEUE),
    (
        "exchange exchanges routing_key binding",
        "describe it below topics:, like my-topic: {exchange: shop, routing_key: paid}",
    ),
    (
        "ordering ordered fifo sequential",
        "write version: at the topic, and an ordering strategy such as state_machine",
    ),
    ("partition_key message_key", "write key: body.order_id"),
    ("serializer deserializer encoding content_type decoder", "write format: json at the topic"),
)
_APP_ANSWERS: tuple[tuple[str, str], ...] = (
    ("broker broker_url amqp rabbitmq rocketmq kafka", 'write brokers: {shop: {url: "amqp://localhost"}}'),
    (
        "db db_url database_url sqlalchemy_url dsn result_backend backend",
        'write database: {url: "sqlite:///app.db"}',
    ),
    ("redis_url redis_host redis_uri cache", 'write redis: {url: "redis://localhost:6379/0"}'),
    ("app_name project service", "write app:"),
    ("queue queues exchange exchanges channels streams subjects", "write topics:"),
    ("handlers tasks subscribers actors listeners workers_list", "write consumers:"),
    ("log_level loglevel log logs", _LOG),
    ("metrics prometheus health healthcheck metrics_port monitoring", _HTTP),
    ("graceful_timeout shutdown_timeout stop_timeout grace_period drain", "write grace: 30s"),
    ("retry strategies workers keep limits in_flight unit_time batch effects", "write it below defaults:"),
    (
        "max_retries retries concurrency threads prefetch prefetch_count time_limit ack",
        "write it below defaults: or a consumer",
    ),
)
_BROKER_ANSWERS: tuple[tuple[str, str], ...] = (
    ("host hostname port uri address virtual_host vhost", "write it in the url: scheme://host:port/path"),
    ("user login", "write username:"),
    ("pass passwd pwd", "write password:"),
)
_REDIS_ANSWERS: tuple[tuple[str, str], ...] = (
    ("host hostname port uri address db database", "write it in the url: redis://host:6379/0"),
    ("hosts nodes startup_nodes cluster", "write url: redis+cluster://host:7001,host2:7001"),
    ("sentinel sentinels service master_name", "write url: redis+sentinel://host:26379/service"),
    ("ssl tls", "write url: rediss://host:6379/0"),
    (
        "ca_file cafile ca_certs ssl_ca_certs ca_cert cacert",
        "write ca: /path/of/ca.pem, beside a url with rediss://",
    ),
    ("certfile cert_file ssl_certfile client_cert", "write cert: /path/of/certificate.pem"),
    ("keyfile key_file ssl_keyfile", "write key: /path/of/key.pem"),
    ("ssl_cert_reqs ssl_check_hostname verify insecure", "leave it out: the server must prove who it is"),
    ("socket_timeout socket_connect_timeout command_timeout", "write timeout: 2s"),
    ("max_connections pool pool_size connection_pool", "write connections: 64"),
    *_BROKER_ANSWERS,
)


_RETRY_ANSWERS: tuple[tuple[str, str], ...] = (
    (
        "max max_retries retries max_attempts tries count limit times",
        "write attempts: 6; the first try counts too",
    ),
    ("delay interval min_backoff max_backoff first factor jitter countdown exponential", _PAUSES),
)

_TOPIC_ANSWERS: tuple[tuple[str, str], ...] = tuple(
    entry
    for entry in _ANSWERS
    if entry[1] in {_RETRY, _PAUSES, _LIMITS, _ACK, _DEDUP, "write in_flight: 1000"}
)
"""At a topic most foreign names may be valid options of its adapter."""


def answer(name: str, section: str) -> str | None:
    """Return the replacement for the foreign `name` in a section (`app`, `brokers`, `consumers` …)."""
    tables = {
        "topics": _TOPIC_ANSWERS,
        "app": _APP_ANSWERS,
        "brokers": _BROKER_ANSWERS,
        "database": _BROKER_ANSWERS,
        "redis": _REDIS_ANSWERS,
        "retry": _RETRY_ANSWERS,
    }
    wanted = name.lower().replace("-", "_")
    for names, advice in tables.get(section, _ANSWERS):
        if wanted in names.split():
            return advice
    return None
