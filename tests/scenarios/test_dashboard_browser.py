"""The dashboard in a real browser, headless Chromium: what an operator sees and does, and what a hostile message does not."""

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from oncemq.dashboard import create_app
from services.install import install_packages
from support.apps.command_line import CommandLine
from support.apps.program import eventually

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(180)]

PAGES = (
    "/",
    "/dead-letters",
    "/dead-letters?group=1",
    "/key?key=a1",
    "/waiting",
    "/locks",
    "/audit",
    "/configuration",
)
HOSTILE = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"


_BEYOND = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
"""Pixels by which a page is wider than what is seen of it."""


def _installed() -> tuple[str, str]:
    """Return the browser and its driver; they are installed where they are missing."""
    names = ("chromium", "chromedriver")
    found = [shutil.which(name) for name in names]
    if None in found and install_packages("chromium", "chromium-driver"):
        found = [shutil.which(name) for name in names]
    browser, driver = found
    if browser is None or driver is None:
        raise AssertionError(
            "Chromium is not installed, and cannot be: apt-get install chromium chromium-driver"
        )
    return browser, driver


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Return a browser."""
    browser, driver = _installed()
    options = ChromeOptions()
    options.binary_location = browser
    profile = tmp_path_factory.mktemp("chromium")
    for each in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        f"--user-data-dir={profile}",
        "--lang=en",
    ):
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options, ChromeService(driver, env={**os.environ, "HOME": str(profile)}))
    yield chrome
    chrome.quit()


class Operator:
    """A person at the browser.

    Args:
        chrome: the browser.
        address: of the page.
        line: the app.
    """

    def __init__(self, chrome: Chrome, address: str, line: CommandLine) -> None:
        self.chrome = chrome
        self.address = address
        self.line = line

    def opens(self, path: str) -> None:
        """Open a page."""
        self.chrome.get(f"{self.address}{path}")

    def finds(self, selector: str) -> WebElement:
        """Return the first element that a CSS selector names."""
        return self.chrome.find_element(By.CSS_SELECTOR, selector)

    def sees(self) -> str:
        """Return the visible text of the page."""
        return self.finds("body").text

    def runs(self, script: str) -> object:
        """Return what a script says about the page."""
        found: object = self.chrome.execute_script(script)
        return found

    def complaints(self) -> list[str]:
        """Return what the browser complains about, such as a script that the policy of the page forbids."""
        entries = self.chrome.get_log("browser")
        return [str(entry["message"]) for entry in entries]


@pytest.fixture
def operator(tmp_path: Path, chrome: Chrome) -> Iterator[Operator]:
    """Return a person who looks at the page of an app, and may change things."""
    folder = tmp_path / ("a-folder-with-a-long-name-" * 6)
    folder.mkdir()
    line = CommandLine(folder)
    line.create_tables()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    app = create_app(line.app, allow_changes=True)
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started, "the page is served", 20)
    chrome.set_window_size(1280, 800)
    chrome.delete_all_cookies()
    yield Operator(chrome, f"http://127.0.0.1:{port}", line)
    server.should_exit = True
    thread.join(20)


def hostile(operator: Operator) -> None:
    """Publish a dead letter whose texts are markup."""
    operator.line.publish_dead_letters(HOSTILE.encode(), KEY=HOSTILE, REASON="rejected", ERROR_TEXT=HOSTILE)


def test_the_overview_follows_what_happens(operator: Operator) -> None:
    """What another operator does appears without a click."""
    operator.opens("/")
    assert "stock is counted" not in operator.sees()
    assert operator.line.run("pause", "award", "--why", "stock is counted").exit_code == 0
    eventually(lambda: "stock is counted" in operator.sees(), "the pause is shown", 20)


def test_a_hostile_message_is_text_wherever_it_is_shown(operator: Operator) -> None:
    """No script of it runs, and no picture of it is loaded; it can be read."""
    hostile(operator)
    for path in ("/dead-letters", "/dead-letters?group=1", "/dead-letters/one?consumer=award&id=1"):
        operator.opens(path)
        assert "taken" not in operator.chrome.title
        assert "<script>document.title" in operator.sees()
        assert operator.runs("return document.querySelectorAll('main img, main script').length") == 0
    assert operator.complaints() == []


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_page_is_wider_than_the_screen(operator: Operator, width: int) -> None:
    """Tables that are wider scroll by themselves."""
    hostile(operator)
    operator.chrome.set_window_size(width, 800)
    operator.chrome.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False},
    )
    try:
        wide = {}
        for path in PAGES:
            operator.opens(path)
            wide[path] = operator.runs(_BEYOND)
        assert {path: beyond for path, beyond in wide.items() if beyond} == {}
    finally:
        operator.chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_key_is_found_with_the_keyboard_alone(operator: Operator) -> None:
    """The first stop of the tab key leads past the navigation, and each stop can be seen."""
    operator.line.publish_dead_letters(b"{}", KEY="a1", REASON="rejected")
    operator.opens("/")
    active = operator.chrome.switch_to.active_element
    active.send_keys(Keys.TAB)
    assert operator.runs("return document.activeElement.className") == "skip"
    while operator.runs("return document.activeElement.id") != "find-key":
        operator.chrome.switch_to.active_element.send_keys(Keys.TAB)
        shown = operator.runs("return getComputedStyle(document.activeElement).outlineStyle")
        assert shown != "none"
    operator.chrome.switch_to.active_element.send_keys("a1", Keys.ENTER)
    eventually(lambda: "key=a1" in operator.chrome.current_url, "the page of the key", 20)
    assert "rejected" in operator.sees()


def test_the_chosen_language_stays(operator: Operator) -> None:
    """From page to page."""
    operator.opens("/")
    assert operator.finds("html").get_attribute("lang") == "en"
    operator.finds("footer a[lang='zh']").click()
    eventually(lambda: operator.finds("html").get_attribute("lang") == "zh-CN", "the page is Chinese", 20)
    operator.finds("nav a[href$='/dead-letters']").click()
    assert operator.finds("html").get_attribute("lang") == "zh-CN"
    assert "死信" in operator.sees()


def test_all_of_a_filter_are_replayed_after_a_preview(operator: Operator) -> None:
    """The preview counts, the page shows the progress, and the messages come again."""
    operator.line.publish_dead_letters(*[b'{"order_id": "a1"}'] * 3, KEY="a1", REASON="rejected")
    operator.line.publish_dead_letters(b'{"order_id": "b2"}', KEY="b2", REASON="rejected")
    operator.opens("/dead-letters?key=a1")
    operator.finds("form:not(.filter) ~ form button[value='replay']").click()
    assert "award: 3" in operator.sees()
    operator.finds("input[name='why']").send_keys("the account is there again")
    operator.finds("form[action$='/do'] button:not([name])").click()
    eventually(lambda: "3" in operator.sees() and operator.line.waiting() == 3, "three are replayed", 20)
    operator.opens("/dead-letters")
    assert [each.text for each in operator.chrome.find_elements(By.CSS_SELECTOR, "td a[href*='/one?']")] == [
        "b2"
    ]
    operator.opens("/audit")
    assert "the account is there again" in operator.sees()


def test_no_page_makes_the_browser_complain(operator: Operator) -> None:
    """Neither its policy of content nor a missing file."""
    hostile(operator)
    operator.complaints()
    for path in PAGES:
        operator.opens(path)
        assert operator.complaints() == [], path
