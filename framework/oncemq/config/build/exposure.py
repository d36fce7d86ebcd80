"""Warns of settings exposed to others, though the app may run: unverified servers, and public listen addresses."""

from urllib.parse import parse_qsl, urlsplit

from oncemq.common.problems import Problem, Severity
from oncemq.config.build.shared_parts import Reporter, written
from oncemq.config.model.app_model import AppModel, Broker

_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound


def warn_of_exposure(model: AppModel, report: Reporter) -> None:
    """Report a warning for each broker whose certificate is not verified, and for metrics on a public address."""
    for name, broker in model.brokers.items():
        if _unproved(broker):
            report.note(
                ("brokers", name),
                Problem(
                    f"broker {name!r} does not have to prove who it is: verify is false, so another server can read "
                    "every message and password",
                    "name its authority by ca:, and leave verify out",
                    severity=Severity.WARNING,
                ),
            )
    if model.http is not None and model.http.address.host in _EVERYWHERE:
        report.note(
            ("http", "address"),
            Problem(
                "metrics and health are shown on every address of this machine, without a password",
                "write 127.0.0.1 or the address of an inner network, unless a firewall stands before it",
                severity=Severity.WARNING,
            ),
        )


def _unproved(broker: Broker) -> bool:
    try:
        query = dict(parse_qsl(urlsplit(broker.url.reveal()).query))
    except ValueError:
        return False
    asked = written(broker.options).get("verify", query.get("verify", "true"))
    return str(asked).lower() in {"false", "0", "no"}
