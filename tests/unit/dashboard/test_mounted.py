"""The page inside another ASGI app: its links, forms and files are below its place."""

import re

import pytest
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.routing import Mount

from oncemq.dashboard import Denied, create_app
from support.apps.command_line import CommandLine
from unit.dashboard.conftest import Browser


class Session:
    """Stands for the login of the app around it."""

    def user(self, request: HTTPConnection) -> str:
        """Return whom the header names."""
        if "x-session" not in request.headers:
            raise Denied(401, "log in first")
        return request.headers["x-session"]


@pytest.fixture
def browser(line: CommandLine) -> Browser:
    """Look from another machine at an app that has mounted the page."""
    page = create_app(line.app, access=Session(), allow_changes=True)
    return Browser(Starlette(routes=[Mount("/oncemq", page)]), "10.0.0.7")


def test_every_address_is_below_its_place(browser: Browser) -> None:
    """So that none leads into the app around it, and each is there."""
    for address in (
        "/oncemq/",
        "/oncemq/dead-letters",
        "/oncemq/waiting",
        "/oncemq/audit",
        "/oncemq/configuration",
    ):
        text = browser.get(address, headers={"x-session": "dora"}).text
        found = re.findall(r'(?:href|src|action|data-address)="([^"]*)"', text)
        places = {each for each in found if not each.startswith(("?", "#"))}
        assert all(each.startswith("/oncemq/") for each in places), places
        assert "dora" in text
    for each in places:
        assert browser.get(each, headers={"x-session": "dora"}).status_code == 200


def test_the_app_around_it_says_who_asks(browser: Browser) -> None:
    """And nothing is shown without it."""
    answer = browser.get("/oncemq/")
    assert (answer.status_code, answer.text) == (401, "log in first\n")


def test_a_form_leads_back_to_it(browser: Browser) -> None:
    """After a change."""
    text = browser.get("/oncemq/", headers={"x-session": "dora"}).text
    token = re.findall(r'name="form_token" value="(\w+)"', text)[0]
    fields = {"form_token": token, "consumer": "award"}
    answer = browser.post("/oncemq/pause", data=fields, headers={"x-session": "dora"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/oncemq/")
