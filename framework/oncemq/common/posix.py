"""Provides what only POSIX systems have, and says so in a sentence where it is missing."""

try:
    import fcntl
    import termios
except ModuleNotFoundError:  # pragma: no cover - Windows
    raise ImportError(
        "OnceMQ runs on Linux and macOS. On Windows its worker processes lack file locks and POSIX signals: "
        "use WSL 2 or a container. Code that only declares handlers may import oncemq.errors and oncemq.message there"
    ) from None

__all__ = ["fcntl", "termios"]
