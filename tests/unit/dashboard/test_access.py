"""Who may see the page, and whose forms are obeyed."""

import base64
from pathlib import Path

import pytest

from oncemq.dashboard import ProxyHeader, Users
from oncemq.dashboard.access import is_loopback, user_line
from oncemq.errors import ConfigError
from support.apps.command_line import CommandLine
from unit.dashboard.conftest import Visitor


def basic(name: str, password: str) -> str:
    """Return the header of HTTP Basic authentication."""
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def test_another_machine_sees_nothing(line: CommandLine) -> None:
    """Unless the page was told who may."""
    assert "its own machine only" in Visitor(line, host="10.0.0.7").see("/", 403)


def test_a_foreign_host_name_is_refused(visitor: Visitor) -> None:
    """Another site's name may point at this machine."""
    assert "unknown host name" in visitor.see("/", 400, host="evil.example:8088")
    assert "Overview" in visitor.see("/", host="localhost:8088")


def test_users_have_passwords(line: CommandLine, tmp_path: Path) -> None:
    """A wrong one, an unknown name and none are refused, nonsense too."""
    (tmp_path / "users").write_text("# operators\n" + user_line("alice", "wonder:land") + "\n")
    visitor = Visitor(line, access=Users(tmp_path / "users"), host="10.0.0.7")
    assert "alice" in visitor.see("/", authorization=basic("alice", "wonder:land"))
    for wrong in (basic("alice", "x"), basic("bob", "wonder:land"), "Basic %%%", "Bearer x", ""):
        answer = visitor.client.get("/", headers={"authorization": wrong})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic")


@pytest.mark.parametrize("text", ["", "alice\n", "alice:secret\n", "alice:scrypt$zz$00\n", ":scrypt$00$00\n"])
def test_a_wrong_line_of_a_user_is_named(tmp_path: Path, text: str) -> None:
    """A password in clear is none."""
    (tmp_path / "users").write_text(text)
    with pytest.raises(ConfigError, match="--new-user"):
        Users(tmp_path / "users")


def test_a_proxy_says_who_asks(line: CommandLine) -> None:
    """Only the proxy is believed."""
    access = ProxyHeader("X-Remote-User", ["10.0.0.0/24"])
    proxied = Visitor(line, access=access, host="10.0.0.7")
    assert "carol" in proxied.see("/", x_remote_user="carol")
    proxied.see("/", 401)
    assert "its proxy only" in Visitor(line, access=access, host="10.0.1.7").see(
        "/", 403, x_remote_user="carol"
    )


def test_a_wrong_network_is_named() -> None:
    """Before anything is served."""
    with pytest.raises(ConfigError, match="write a network"):
        ProxyHeader("X-Remote-User", ["office"])


def test_addresses_of_this_machine() -> None:
    """All others need to be told who may see the page."""
    assert [
        is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "10.0.0.1", "shop")
    ] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_headers_keep_browsers_from_doing_anything_else(visitor: Visitor) -> None:
    """No foreign script, no frame, no cache, no guessing of types; also where access is denied."""
    for answer in (visitor.client.get("/"), Visitor(visitor.line, host="10.0.0.7").client.get("/")):
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_a_page_has_no_inline_script_or_style(visitor: Visitor) -> None:
    """Its own policy would forbid them."""
    for address in ("/", "/key?key=a", "/dead-letters", "/waiting", "/audit", "/configuration"):
        text = visitor.see(address)
        assert "<style" not in text
        assert " style=" not in text
        assert "<script>" not in text
        assert " onclick" not in text


@pytest.mark.parametrize(
    "address", ["/pause", "/dead-letters/act", "/dead-letters/do", "/waiting/claim", "/waiting/outbox"]
)
def test_nothing_is_changed_unless_it_is_allowed(reader: Visitor, address: str) -> None:
    """Whatever is sent."""
    answer = reader.send(address, {"consumer": "award", "act": "purge"})
    assert answer.status_code == 403
    assert "--allow-changes" in answer.text


@pytest.mark.parametrize("token", ["", "0" * 64, "é"])
def test_a_form_of_another_site_is_refused(visitor: Visitor, token: str) -> None:
    """It does not know the token."""
    answer = visitor.send("/pause", {"consumer": "award", "form_token": token})
    assert answer.status_code == 403
    assert "not of this page" in answer.text


@pytest.mark.parametrize(
    "headers", [{"origin": "https://evil.example"}, {"sec_fetch_site": "cross-site"}, {"origin": "null"}]
)
def test_a_form_sent_by_another_site_is_refused(visitor: Visitor, headers: dict[str, str]) -> None:
    """Even with a token."""
    answer = visitor.send("/pause", {"consumer": "award"}, **headers)
    assert "sent by another site" in answer.text


def test_a_form_without_end_is_refused(visitor: Visitor) -> None:
    """It is not held in memory."""
    answer = visitor.send("/pause", {"consumer": "award", "why": "x" * 100_000})
    assert answer.status_code == 413
