"""Chromium, by the pipe of its DevTools protocol: nothing except Chromium is installed, and no port is open.

https://chromedevtools.github.io/devtools-protocol/ lists methods and events.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

HOST: Final = "127.0.0.1"
_NAMES: Final = ("chromium", "chromium-browser")
_OPTIONS: Final = (
    "--headless",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Nothing leaves this machine.
    f"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE {HOST}",
)
_SECONDS: Final = 300.0
"""After which nothing will come any more, on the busiest machine."""
_KEYS: Final[Mapping[str, dict[str, Any]]] = {
    "Tab": {"windowsVirtualKeyCode": 9},
    "Enter": {"windowsVirtualKeyCode": 13, "text": "\r"},
    "/": {"windowsVirtualKeyCode": 191, "text": "/"},
}


class MissingError(Exception):
    """Chromium is missing; the message has the remedy."""


class PageError(AssertionError):
    """An error of the page or of Chromium, instead of a result."""


def installed() -> str:
    """Path of Chromium.

    Raises:
        MissingError: it is not installed.
    """
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    raise MissingError("chromium must be on the PATH, got none; install it (Debian: apt-get install chromium)")


@contextmanager
def running() -> Iterator[Chromium]:
    """Run Chromium with an empty profile until the context ends."""
    path = installed()
    with tempfile.TemporaryDirectory(prefix="cdk-sagas-browser-", ignore_cleanup_errors=True) as profile:
        options = [*_OPTIONS, f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        to_read, to_write = os.pipe(), os.pipe()
        # Chromium reads from 3 and writes to 4; both are free once ours are higher.
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (to_read[0], to_write[1])]
        actions = [(os.POSIX_SPAWN_DUP2, theirs[0], 3), (os.POSIX_SPAWN_DUP2, theirs[1], 4)]
        log = os.open(Path(profile) / "log", os.O_CREAT | os.O_WRONLY, 0o600)
        actions += [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
        process = os.posix_spawn(path, [path, *options, "about:blank"], os.environ, file_actions=actions, setpgroup=0)
        for end in (to_read[0], to_write[1], *theirs, log):
            os.close(end)
        try:
            yield Chromium(reads=to_write[0], writes=to_read[1])
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            os.close(to_write[0])
            os.close(to_read[1])


@dataclass(slots=True)
class Chromium:
    """A browser.

    Attributes:
        reads: file descriptor of its messages.
        writes: file descriptor of ours.
    """

    reads: int
    writes: int
    _last: int = 0
    _unread: bytes = b""
    _pages: dict[str, Page] = field(default_factory=dict)

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Call a method, and return its result; events that come before go to their pages.

        Raises:
            PageError: Chromium refused it, or did not answer in time.
        """
        self._last += 1
        asked = self._last
        message = {"id": asked, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        unsent = json.dumps(message).encode() + b"\0"
        while unsent:
            unsent = unsent[os.write(self.writes, unsent) :]
        ends = time.monotonic() + _SECONDS
        while True:
            answer = self.receive(ends, method)
            if answer.get("id") == asked:
                if "error" in answer:
                    raise PageError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])

    def receive(self, ends: float, awaited: str) -> dict[str, Any]:
        """Return the next message; an event is handed to its page, too."""
        while b"\0" not in self._unread:
            if not select.select([self.reads], [], [], max(0.0, ends - time.monotonic()))[0]:
                raise PageError(f"Chromium must answer within {_SECONDS:g} s, got nothing to {awaited}")
            read = os.read(self.reads, 1 << 20)
            if not read:
                raise PageError(f"Chromium ended before it answered {awaited}")
            self._unread += read
        first, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        page = self._pages.get(message.get("sessionId", ""))
        if page is not None and "method" in message:
            page.hear(message["method"], message["params"])
        return message

    @contextmanager
    def page(self) -> Iterator[Page]:
        """Open a page with storage of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call("Page.setLifecycleEventsEnabled", enabled=True)
        try:
            yield page
        finally:
            del self._pages[session]
            self.call("Target.disposeBrowserContext", browserContextId=context)


@dataclass(slots=True)
class Page:
    """A page.

    Attributes:
        requests: addresses of all requests.
        problems: errors of the console, and of scripts.
        status: of the last document.
    """

    browser: Chromium
    session: str
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    status: int = 0
    _metrics: dict[str, Any] = field(default_factory=dict)
    _begun: set[str] = field(default_factory=set)
    _loaded: set[str] = field(default_factory=set)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        return self.browser.call(method, self.session, **parameters)

    def hear(self, event: str, told: dict[str, Any]) -> None:
        """Record an event."""
        if event == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif event == "Network.responseReceived" and told["type"] == "Document":
            self.status = int(told["response"]["status"])
        elif event == "Page.lifecycleEvent":
            self._begun.add(told["loaderId"])
            if told["name"] == "load":
                self._loaded.add(told["loaderId"])
        elif event == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.problems.append(f"{told['entry']['text']} ({told['entry'].get('url', '')})")
        elif event == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(told["exceptionDetails"])[:500])
        elif event == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"):
            self.problems.append(json.dumps(told["args"])[:500])

    def look(self, scheme: str, width: int, height: int, *, mobile: bool) -> None:
        """Take on a size and a colour scheme."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", **self._metrics)
        self.call("Emulation.setTouchEmulationEnabled", enabled=mobile)

    def visit(self, address: str) -> None:
        """Open an address, and wait until it is loaded."""
        assert urlsplit(address).hostname == HOST, address
        told = self.call("Page.navigate", url=address)
        assert "errorText" not in told, f"{address}: {told['errorText']}"
        self._hear_until(lambda: told["loaderId"] in self._loaded)

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Wait, after the block, until it has loaded a document."""
        before = set(self._begun)
        yield
        self._hear_until(lambda: self._loaded - before)

    def _hear_until(self, condition: Callable[[], Any]) -> None:
        ends = time.monotonic() + _SECONDS
        while not condition():
            self.browser.receive(ends, "a load")

    def evaluate(self, script: str) -> Any:
        """Value of an expression, or of its promise, in the page."""
        told = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise PageError(json.dumps(told["exceptionDetails"])[:2_000])
        return told["result"].get("value")

    def wait(self, condition: Callable[[], Any], awaited: str) -> Any:
        """Wait until a condition is true, and return its value."""
        ends = time.monotonic() + _SECONDS
        while True:
            # A document that is being replaced answers nothing.
            with suppress(PageError):
                if value := condition():
                    return value
            assert time.monotonic() < ends, f"{awaited} must be, got: {self.problems} {self.text()[:500]}"
            time.sleep(0.02)

    def text(self) -> str:
        """The visible text."""
        return str(self.evaluate("document.body.innerText"))

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key."""
        known = {"key": key, "code": key, "modifiers": 8 if shift else 0, **_KEYS[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", **known)
        self.call("Input.dispatchKeyEvent", type="keyUp", **{k: v for k, v in known.items() if k != "text"})

    def type(self, text: str) -> None:
        """Enter text where the focus is."""
        self.call("Input.insertText", text=text)

    def place(self, selector: str) -> tuple[float, float]:
        """Middle of an element, scrolled into view."""
        x, y = self.evaluate(
            "(e => { e.scrollIntoView({block: 'center', behavior: 'instant'}); const r = e.getBoundingClientRect(); "
            f"return [r.x + r.width / 2, r.y + r.height / 2] }})(document.querySelector({json.dumps(selector)}))"
        )
        return float(x), float(y)

    def point(self, selector: str) -> None:
        """Move the mouse over an element."""
        x, y = self.place(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str, *, times: int = 1) -> None:
        """Click an element, several times as fast as possible."""
        x, y = self.place(selector)
        for count in range(1, times + 1):
            for what in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=what, x=x, y=y, button="left", clickCount=count)

    def back(self) -> None:
        """Press the browser's back button."""
        told = self.call("Page.getNavigationHistory")
        entry = told["entries"][told["currentIndex"] - 1]["id"]
        self.call("Page.navigateToHistoryEntry", entryId=entry)
        self.wait(lambda: self.call("Page.getNavigationHistory")["currentIndex"] == told["currentIndex"] - 1, "back")
        self.wait(lambda: self.evaluate("document.readyState") == "complete", "a loaded page")

    def screenshot(self, path: Path, *, height: int) -> None:
        """Write a picture of the page, from its top to its end or a height."""
        # In a taller window, since pages that are scrolled may change.
        whole = int(self.call("Page.getLayoutMetrics")["cssContentSize"]["height"])
        tall = {**self._metrics, "height": min(max(whole, self._metrics["height"]), height)}
        self.call("Emulation.setDeviceMetricsOverride", **tall)
        made = self.call("Page.captureScreenshot")
        self.call("Emulation.setDeviceMetricsOverride", **self._metrics)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(made["data"]))
