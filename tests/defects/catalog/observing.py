"""Defects of what spans and metrics say, and of how they leave the process."""

from defects.defect import Defect, Edit

TRACING = "tests/unit/observe/test_tracing.py"
INSTRUMENTS = "tests/unit/observe/test_otel_instruments.py"

DEFECTS = (
    Defect(
        "a-duplicate-of-another-consumers-message",
        "The trace that applied a duplicate's message is one of its own consumer.",
        [
            Edit(
                "framework/oncemq/observe/otel/tracing.py",
                "            return self._spans.get((consumer, delivery.envelope.identity))\n",
                "            return next((s for (_, i), s in self._spans.items() if i == delivery.envelope.identity), None)\n",
            )
        ],
        [f"{TRACING}::test_a_duplicate_of_what_another_process_applied_names_no_trace"],
    ),
    Defect(
        "opentelemetry-counters-go-back",
        "Counters of OpenTelemetry go on when an app is started again in its process.",
        [
            Edit(
                "framework/oncemq/observe/otel/instruments.py",
                "                ended.update(_counts(metrics, name, more))\n",
                "                pass\n",
            )
        ],
        [f"{INSTRUMENTS}::test_counters_of_an_app_that_starts_again_go_on"],
    ),
    Defect(
        "gauges-of-an-app-that-has-ended",
        "OpenTelemetry is shown no gauges of an app that has ended.",
        [
            Edit(
                "framework/oncemq/observe/monitor.py",
                "            self._instruments.close()\n",
                "            pass\n",
            )
        ],
        [f"{INSTRUMENTS}::test_counters_of_an_app_that_starts_again_go_on"],
    ),
    Defect(
        "an-exporter-is-missing",
        "A variable for metrics that cannot be exported keeps no app from its work.",
        [
            Edit(
                "framework/oncemq/observe/otel/export.py",
                "            except (MissingExtra, ConfigError) as error:\n",
                "            except ZeroDivisionError as error:\n",
            )
        ],
        [
            "tests/unit/observe/test_metrics_export.py::test_an_exporter_that_cannot_be_had_is_named_and_the_app_runs"
        ],
    ),
)
