"""Defects of Kafka's adapter: starts at the same time, logins that break off, bodies with a registry's header."""

from defects.defect import Defect, Edit

ADMINISTRATION = "adapters/oncemq_adapters/kafka/administration.py"
ERRORS = "adapters/oncemq_adapters/kafka/errors.py"
DECODING = "framework/oncemq/message/decoding.py"
HEADER = "tests/unit/message/test_registry_header.py"
STARTS = "tests/suites/kafka/test_starts.py"
UNIT = "tests/unit/adapters/kafka"

DEFECTS = (
    Defect(
        "kafka-topic-of-another-start",
        "A topic that another process has made since this one looked is used.",
        [
            Edit(
                ADMINISTRATION,
                "if found is None or found.code() != KafkaError.TOPIC_ALREADY_EXISTS:",
                "if found:",
            )
        ],
        [f"{STARTS}::test_a_topic_that_another_process_has_just_made_is_used"],
    ),
    Defect(
        "kafka-new-topic-known-at-once",
        "A broker that has not heard of a new topic yet is asked again, and does not end the start.",
        [Edit(ADMINISTRATION, "except (Unroutable, BrokerUnavailable):", "except BrokerUnavailable:")],
        [f"{UNIT}/test_administration.py::test_a_broker_that_has_not_heard_of_a_new_topic_is_asked_again"],
    ),
    Defect(
        "kafka-lost-login-is-a-refusal",
        "A connection that is lost during a login is no wrong password.",
        [Edit(ERRORS, "_UNANSWERED not in error.str()", "_UNANSWERED is not None")],
        [
            f"{UNIT}/test_errors.py::test_a_connection_that_was_lost_during_a_login_is_no_refusal",
            f"{STARTS}::test_a_connection_that_is_lost_during_a_login_is_made_again",
            f"{STARTS}::test_connections_that_are_lost_during_every_login_are_no_wrong_password",
        ],
    ),
    Defect(
        "registry-header-is-a-body",
        "JSON is read behind a schema registry's header.",
        [Edit(DECODING, "json_body(behind_header(body))", "json_body(body)")],
        [f"{HEADER}::test_json_behind_the_header_is_decoded"],
    ),
    Defect(
        "registry-header-untold",
        "A body with a schema registry's header is a dead letter that says which format to write.",
        [Edit(DECODING, "raise explained(message, body, body_format, error) from None", "raise")],
        [f"{HEADER}::test_a_header_that_the_format_does_not_read_is_told"],
    ),
    Defect(
        "registry-id-in-headers-missed",
        "JSON whose schema is named in the message's headers has no header in front of it.",
        [
            Edit(
                DECODING,
                "json_body(body) if registered and ID_HEADER in message.headers else parse(body)",
                "parse(body)",
            )
        ],
        [f"{HEADER}::test_json_whose_schema_is_named_in_the_headers_has_nothing_in_front"],
    ),
    Defect(
        "kafka-full-member-stops-polling",
        "A member that holds all it may goes on polling, so that a long handler does not end its membership.",
        [
            Edit(
                "adapters/oncemq_adapters/kafka/group_member.py",
                "if room <= 0 and not paused and not self._is_blocked():",
                "if room <= 0 and not paused:",
            )
        ],
        [
            "tests/suites/kafka/test_traps.py::test_a_handler_longer_than_the_clients_poll_interval_loses_nothing"
        ],
    ),
    Defect(
        "kafka-dead-broker-asked-on",
        "After a broker did not answer, the next question goes to a client that knows the cluster as it is now.",
        [Edit(ADMINISTRATION, "            self.close()\n", "            pass\n")],
        [f"{UNIT}/test_administration.py::test_after_a_broker_did_not_answer_a_new_client_is_asked"],
    ),
)
