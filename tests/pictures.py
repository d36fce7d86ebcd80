"""Takes the pictures of docs/img from the dashboard of a small app, in headless Chromium: `make pictures`."""

import argparse
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep
from urllib.error import URLError
from urllib.request import urlopen

APP = """\
app: shop
brokers: {main: {url: "embedded:///broker.db"}}
database: {url: "sqlite:///shop.db"}
topics:
  order.paid: {key: body.order, identity: body.payment, strategies: [unique_key]}
  order.state: {key: body.order, version: body.number, identity: [body.order, body.number], strategies: [sequence]}
  order.mail: {key: body.order, identity: body.payment, strategies: [two_phase]}
consumers:
  award-points: {topic: order.paid, handler: "handlers:award", retry: {attempts: 2, backoff: {first: 500ms}}}
  follow-orders: {topic: order.state, handler: "handlers:follow"}
  send-receipt: {topic: order.mail, handler: "handlers:mail", effects: external, retry: {attempts: 1}}
"""
HANDLERS = """\
from oncemq import Reject
from sqlalchemy.orm import Session


def award(order: dict, session: Session) -> None:
    if order["amount"] > 990:
        raise Reject("the amount is above the limit of an order")
    if order["amount"] < 8:
        raise ValueError("no such account: " + order["order"])


def follow(order: dict, session: Session) -> None: ...


def mail(order: dict) -> None:
    if order["amount"] < 3:
        raise ConnectionError("the mail server hung up")
"""
PICTURES = {
    "dashboard": ("/", "1280,640", ()),
    "dashboard-dark": ("/dead-letters", "1280,640", ("--blink-settings=preferredColorScheme=0",)),
    "dashboard-key": ("/key?key=order-7", "1280,640", ()),
    "dashboard-letters": ("/dead-letters", "1280,640", ()),
    "dashboard-errors": ("/dead-letters?group=1", "1280,480", ()),
    "dashboard-waiting": ("/waiting", "1280,640", ()),
    "dashboard-configuration": ("/configuration", "1280,800", ()),
    "dashboard-phone": ("/?lang=zh", "480,900", ()),
}


def main(into: Path) -> None:
    """Take them."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("there is no Chromium: apt-get install chromium fonts-noto-cjk")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        run = [sys.executable, "-m", "oncemq"]
        with (
            (folder / "log").open("w") as log,
            subprocess.Popen([*run, "run"], cwd=folder, stderr=log) as app,
            subprocess.Popen([*run, "dashboard", "--address", address], cwd=folder, stderr=log) as page,
        ):
            try:
                wait_for(f"http://{address}/")
                for picture, (path, size, more) in PICTURES.items():
                    target = into / f"{picture}.png"
                    options = ["--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size={size}"]
                    subprocess.run(
                        [browser, *options, *more, f"--screenshot={target}", f"http://{address}{path}"],
                        check=True,
                        capture_output=True,
                    )
                    print(target)  # noqa: T201
            finally:
                page.terminate()
                app.terminate()


def prepare(folder: Path) -> None:
    """Write an app, and publish what makes its pages worth a look."""
    draw = random.Random(4)
    (folder / "app.yaml").write_text(APP)
    (folder / "handlers.py").write_text(HANDLERS)
    orders = [
        {"order": f"order-{draw.randrange(300)}", "payment": number, "amount": draw.randrange(1000)}
        for number in range(1500)
    ]
    orders += [*draw.sample(orders, 200), {"order": "order-7", "payment": "late", "amount": 999}]
    states = [{"order": f"order-{number % 40}", "number": 1 + number // 40} for number in range(200)]
    states = [each for each in states if (each["order"], each["number"]) != ("order-3", 2)]
    lines = {"order.paid": orders, "order.state": states, "order.mail": orders[:300]}
    subprocess.run(
        [sys.executable, "-m", "oncemq", "tables", "create"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for topic, bodies in lines.items():
        text = "".join(json.dumps(body) + "\n" for body in bodies)
        command = [sys.executable, "-m", "oncemq", "publish", topic]
        subprocess.run(command, cwd=folder, check=True, input=text, text=True, stdout=subprocess.DEVNULL)


def wait_for(address: str) -> None:
    """Wait until the page answers, and until the app has had time to work."""
    until = monotonic() + 30
    while monotonic() < until:
        try:
            with urlopen(address):
                sleep(6)
                return
        except URLError:
            sleep(0.2)
    raise SystemExit(f"{address} does not answer")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=Path("docs/img"))
    given = parser.parse_args()
    given.into.mkdir(parents=True, exist_ok=True)
    main(given.into.resolve())
