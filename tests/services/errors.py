"""The one error of the services: what went wrong and what a person can do about it."""


class ServiceError(Exception):
    """A server could not be installed, started, reached or stopped."""


class PortTakenError(ServiceError):
    """A server ended at its start, because something else listens on one of its ports."""
