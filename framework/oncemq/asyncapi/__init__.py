"""Describes an app in AsyncAPI 3.0."""

from oncemq.asyncapi.document import asyncapi_document

__all__ = ["asyncapi_document"]
