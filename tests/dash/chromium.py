"""A headless Chromium, driven by the DevTools protocol (https://chromedevtools.github.io/devtools-protocol) over a
pipe: messages of JSON, each ended by a zero byte, on the browser's descriptors 3 and 4."""

import base64
import contextlib
import functools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

DEADLINE = 60  # seconds until a test gives up on the browser; nothing waits for it to pass
FLAGS = (
    "--headless=new --no-sandbox --remote-debugging-pipe --disable-gpu --hide-scrollbars --no-first-run "
    "--disable-dev-shm-usage --disable-background-networking --disable-component-update --disable-sync"
).split()
# Puts the pipes where the browser looks for them, by way of numbers that neither of them has.
START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(each), fcntl.F_DUPFD_CLOEXEC, 10) for each in sys.argv[1:3]]
for number, end in zip((3, 4), ends, strict=True):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""


@functools.cache
def program() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


needs_chromium = pytest.mark.skipif(
    program() is None, reason="there is no Chromium: scripts/install_packages.sh scripts/packages_browser.txt"
)


class Page:
    """One page of a browser of its own. `errors`: what the page wrote to the console, exceptions and refused loads."""

    def __init__(self, process: subprocess.Popen, write: int, read: int):
        self._process, self._write, self._read = process, write, read
        self._buffer, self._number, self._answers = b"", 0, {}
        self.errors: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters) -> dict:
        """The answer to a command of DevTools."""
        return self._call(method, session=self._session, **parameters)

    def _call(self, method: str, session: str | None = None, **parameters) -> dict:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + DEADLINE
        while self._number not in self._answers:
            self._receive(deadline)
        answer = self._answers.pop(self._number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _receive(self, deadline: float) -> None:
        ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"Chromium has not answered within {DEADLINE} s"
        data = os.read(self._read, 1 << 20)
        assert data, f"Chromium has ended, exit code {self._process.poll()}"
        *messages, self._buffer = (self._buffer + data).split(b"\0")
        for text in messages:
            self._take(json.loads(text))

    def _take(self, message: dict) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
            return
        parameters = message["params"]
        if message["method"] == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif message["method"] == "Runtime.consoleAPICalled":
            self.errors.append(" ".join(str(each.get("value")) for each in parameters["args"]))
        elif message["method"] == "Log.entryAdded":
            entry = parameters["entry"]
            self.errors.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, expression: str):
        """The value of a JavaScript expression; of a promise, what it becomes."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait_for(self, expression: str) -> object:
        """The expression's value as soon as it is true, looked at after every frame."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            with contextlib.suppress(AssertionError):  # a page that is just being replaced
                if value := self.run(f"document.readyState === 'complete' && ({expression})"):
                    return value
            select.select([self._read], [], [], 0.05)
        raise AssertionError(f"not true within {DEADLINE} s: {expression}; the page: {self.text('body')[:2000]}")

    def text(self, selector: str) -> str:
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def resize(self, width: int, height: int, is_phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=2 if is_phone else 1, mobile=is_phone,
        )  # fmt: skip

    def prefer(self, scheme: str) -> None:
        """`scheme`: light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path) -> None:
        """Of the whole page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        picture = self.call(
            "Page.captureScreenshot", captureBeyondViewport=True,
            clip={"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1},
        )  # fmt: skip
        path.write_bytes(base64.b64decode(picture["data"]))


@contextlib.contextmanager
def browser():
    """A page in a browser that ends with the block."""
    to_browser, ours_to = os.pipe()
    ours_from, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(prefix="qccl-chromium-", ignore_cleanup_errors=True) as profile:
        command = [sys.executable, "-c", START, str(to_browser), str(from_browser), str(program())]
        process = subprocess.Popen(
            [*command, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        try:
            page = Page(process, ours_to, ours_from)
            yield page
            os.write(ours_to, json.dumps({"id": 0, "method": "Browser.close"}).encode() + b"\0")
            process.wait(timeout=DEADLINE)
        finally:
            os.close(ours_to)  # the browser ends with its pipe
            os.close(ours_from)
            if process.poll() is None:
                process.kill()
            process.wait()
