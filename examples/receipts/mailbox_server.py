"""A small SMTP server that keeps every mail in a file, and disconnects at the worst moments.

    python mailbox_server.py start | list | stop

Two mails fail, each once: the connection for bob's breaks after the mail is stored and before it is confirmed;
the one for cid's breaks before the mail is stored. Both look the same to the sender.
"""

import asyncio
import contextlib
import email
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from email.message import Message
from pathlib import Path

HERE = Path(__file__).parent
MAILS, ADDRESS = HERE / "mails", HERE / "mailbox.address"
BREAKS_AFTER, BREAKS_BEFORE = "bob@example.org", "cid@example.org"
LIFETIME = 600
"""Seconds after which a forgotten server ends by itself."""


def port() -> int:
    """Return the port that the server listens on."""
    return int(ADDRESS.read_text().split()[0])


def delivered() -> list[Message]:
    """Return every mail that the server has kept, in order."""
    return [email.message_from_bytes(path.read_bytes()) for path in sorted(MAILS.glob("*.eml"))]


class Server:
    """Speaks as much SMTP as `smtplib` does."""

    def __init__(self) -> None:
        self._broken: set[str] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client until it quits or is disconnected."""
        answers: dict[str, Callable[[], str]] = {"EHLO": lambda: "250 mailbox", "QUIT": lambda: "221 bye"}
        await self._say(writer, "220 mailbox")
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while line := (await reader.readline()).decode():
                word = line[:4].upper()
                if word == "DATA" and not await self._mail(reader, writer):
                    break
                if word != "DATA":
                    await self._say(writer, answers.get(word, lambda: "250 fine")())
                if word == "QUIT":
                    break
        writer.close()

    async def _mail(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await self._say(writer, "354 go on")
        text = (await reader.readuntil(b"\r\n.\r\n")).removesuffix(b".\r\n")
        receiver = str(email.message_from_bytes(text)["To"])
        breaks = receiver in {BREAKS_AFTER, BREAKS_BEFORE} and receiver not in self._broken
        self._broken.add(receiver)
        if not breaks or receiver == BREAKS_AFTER:
            (MAILS / f"{time.time_ns()}.eml").write_bytes(text)
        if breaks:
            return False
        await self._say(writer, "250 kept")
        return True

    async def _say(self, writer: asyncio.StreamWriter, line: str) -> None:
        writer.write(f"{line}\r\n".encode())
        await writer.drain()


async def listen() -> None:
    """Serve for a while."""
    listening = await asyncio.start_server(Server().serve, "127.0.0.1", 0)
    partial = ADDRESS.with_suffix(".new")
    partial.write_text(f"{listening.sockets[0].getsockname()[1]} {os.getpid()}")
    partial.rename(ADDRESS)
    await asyncio.sleep(LIFETIME)


def start() -> None:
    """Start a server in the background; returns when it listens."""
    MAILS.mkdir(exist_ok=True)
    ADDRESS.unlink(missing_ok=True)
    quiet = subprocess.DEVNULL
    subprocess.Popen(  # noqa: S603 - this very file
        [sys.executable, __file__, "listen"], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    )
    until = time.monotonic() + 30
    while not ADDRESS.exists():
        if time.monotonic() > until:
            sys.exit("the mail server did not start")
        time.sleep(0.02)
    print("the mail server listens")


def stop() -> None:
    """Stop the server."""
    os.kill(int(ADDRESS.read_text().split()[1]), signal.SIGTERM)
    ADDRESS.unlink()


if __name__ == "__main__":
    if sys.argv[1:] == ["start"]:
        start()
    elif sys.argv[1:] == ["stop"]:
        stop()
    elif sys.argv[1:] == ["listen"]:
        asyncio.run(listen())
    else:
        lines = sorted(f"{mail['To']}: {mail['Subject']}" for mail in delivered())
        print("\n".join(lines) or "no mail was kept")
