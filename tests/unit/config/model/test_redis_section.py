"""The section `redis:` of an app: what it gives to strategies, and how its mistakes are told."""

import importlib.util

import pytest

from support.declared import BASE, loaded, problems


def test_an_app_has_one_client_that_is_not_yet_connected(tmp_path):
    """The plan carries it; nothing answers at its address, and no one minds before it is used."""
    plan = loaded(tmp_path, BASE + 'redis: {url: "redis+cluster://:secret@127.0.0.1:1"}\n').plan
    assert "127.0.0.1:1" in plan.redis.where
    assert "secret" not in repr(plan.redis)


def test_without_a_section_there_is_no_client(tmp_path):
    """Redis is no one's business unless the app says so."""
    assert loaded(tmp_path, BASE).plan.redis is None


@pytest.mark.parametrize(
    ("section", "column", "words"),
    [
        ('{url: "redis://h/x"}', 14, "number of a database"),
        ('{url: "memcached://h"}', 14, "redis+cluster://"),
        ('{url: "redis://h", host: x}', 27, "write it in the url"),
        ('{url: "redis://h", max_connections: 9}', 27, "write connections: 64"),
        ('{url: "redis://h", ssl: true}', 27, "rediss://"),
        ('{url: "redis://h", timeout: 2}', 36, "write 2s"),
        ('{url: "rediss://h", ssl_ca_certs: x}', 28, "write ca:"),
        ('{url: "rediss://h", ssl_cert_reqs: none}', 28, "must prove who it is"),
        ('{url: "rediss://h", ca: nowhere.pem}', 32, "TLS files cannot be used"),
        ('{url: "rediss://h", key: k.pem}', 33, "add cert:"),
        ('{url: "redis://h", ca: nowhere.pem}', 31, "write rediss://"),
        ("{password: x}", 1, "`url` is missing"),
    ],
)
def test_a_mistake_is_told_at_its_place(tmp_path, section, column, words):
    """Line and column, and what to write instead."""
    found = problems(tmp_path, f"{BASE}redis: {section}\n")
    assert any(words in problem and problem.startswith(f"app.yaml:8:{column}:") for problem in found), found


def test_a_missing_library_is_told_with_the_line_to_install_it(tmp_path, monkeypatch):
    """The app does not start and then fail."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "oncemq.redis.connect.find_spec", lambda name: None if name == "redis" else real(name)
    )
    found = problems(tmp_path, BASE + 'redis: {url: "redis://h"}\n')
    assert any("pip install 'oncemq[redis]'" in problem for problem in found), found


def test_names_of_other_frameworks_are_answered(tmp_path):
    """Someone who writes redis_url is told our way."""
    found = problems(tmp_path, BASE + 'redis_url: "redis://h"\n')
    assert any("write redis: {url:" in problem for problem in found), found
