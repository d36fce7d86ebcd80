"""Web page for operators: `oncemq dashboard`, or an ASGI app to mount. Needs the extra `dashboard`."""

from oncemq.dashboard.access import Access, Denied, Loopback, ProxyHeader, Users
from oncemq.dashboard.application import create_app

__all__ = ["Access", "Denied", "Loopback", "ProxyHeader", "Users", "create_app"]
