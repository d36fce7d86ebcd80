"""Warnings about what is open to others."""

from pathlib import Path

import pytest

from support.declared import BASE, loaded


def warnings(folder: Path, text: str) -> list[str]:
    """Return the warnings about an app."""
    return [str(warning) for warning in loaded(folder, text).warnings]


@pytest.mark.parametrize(
    "broker", ['{url: "scripted://host?verify=false"}', '{url: "scripted://host", verify: false}']
)
def test_a_broker_that_need_not_prove_itself_is_warned_about(tmp_path: Path, broker: str) -> None:
    """Whether it is said in the URL or as an option."""
    (said,) = warnings(tmp_path, BASE.replace('{url: "scripted://host"}', broker))
    assert "app.yaml:2:" in said
    assert "'main' does not have to prove who it is" in said


@pytest.mark.parametrize("address", ["0.0.0.0:9464", "[::]:9464", ":9464"])
def test_a_public_address_is_warned_about(tmp_path: Path, address: str) -> None:
    """Metrics show names of consumers and what waits for them."""
    (said,) = warnings(tmp_path, BASE + f'http: {{address: "{address}"}}\n')
    assert "on every address of this machine" in said


def test_what_is_closed_is_not_warned_about(tmp_path: Path) -> None:
    """The usual app has no warning."""
    assert warnings(tmp_path, BASE + 'http: {address: "127.0.0.1:9464"}\n') == []
