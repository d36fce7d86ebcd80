"""Handlers: from a signature to a call with the arguments that its annotations request."""
