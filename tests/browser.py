"""A headless Chromium, spoken to by its own DevTools protocol: no driver and no further dependency."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import aiohttp
import pytest

WITHIN_S = 20.0
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    *("--headless=new", "--no-first-run", "--disable-gpu", "--disable-extensions", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
    *("--font-render-hinting=none", "--remote-debugging-port=0"),
)


def find():
    """The browser's path: ``AIBRIX_BROWSER``, else of PATH. Skips the test, aloud, where there is none."""
    named = os.environ.get("AIBRIX_BROWSER")
    found = named or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("no Chromium: install one (Debian: apt-get install chromium), or name one in AIBRIX_BROWSER")
    return found


class Tab:
    """One page of the browser."""

    def __init__(self, connection, session_id):
        self._connection = connection
        self._session_id = session_id
        self.complaints = []
        """Errors that scripts threw, or that the browser logged: refused by the page's policy, not found, …"""

    async def call(self, method, **parameters):
        """One call of the protocol."""
        return await self._connection.call(method, parameters, self._session_id)

    def heard(self, event):
        if event["method"] == "Runtime.exceptionThrown":
            details = event["params"]["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.complaints.append(event["params"]["entry"]["text"])

    async def go(self, url):
        """Open ``url``."""
        await self.call("Page.navigate", url=url)

    async def look(self, width=1280, height=900, scheme="light", motion="no-preference", scale=1):
        """The size of the window and what its user prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        await self.call("Emulation.setEmulatedMedia", features=[{"name": n, "value": v} for n, v in wishes.items()])

    async def value(self, expression):
        """What a JavaScript expression comes to, a promise's value included."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression):
        """Wait until a JavaScript expression is true; returns its value."""
        deadline = asyncio.get_running_loop().time() + WITHIN_S
        while not (value := await self.value(expression)):
            if asyncio.get_running_loop().time() > deadline:
                said = await self.value("document.body.innerText")
                raise AssertionError(f"never true: {expression}\n{self.complaints}\n{said}")
            await asyncio.sleep(0.05)
        return value

    async def press(self, key, text=""):
        """One key, as a user presses it."""
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        key_of = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": codes.get(key, 0)}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **key_of)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **key_of)

    async def picture(self, height):
        """The page's first ``height`` pixels, as WebP."""
        clip = {"x": 0, "y": 0, "width": await self.value("innerWidth"), "height": height, "scale": 1}
        how = {"format": "webp", "quality": 75, "captureBeyondViewport": True}
        answer = await self.call("Page.captureScreenshot", clip=clip, **how)
        return base64.b64decode(answer["data"])

    async def roles(self):
        """(role, name) of everything that a screen reader is told of, in no order."""
        nodes = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
        ]


class _Connection:
    def __init__(self, socket):
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting = {}
        self.tabs = {}

    async def call(self, method, parameters, session_id=None):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session_id is not None:
            message["sessionId"] = session_id
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json(message)
        async with asyncio.timeout(WITHIN_S):
            return await answer

    async def listen(self):
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                answer = self._waiting.pop(told["id"])
                if "error" in told:
                    answer.set_exception(RuntimeError(f"{told['error']}"))
                else:
                    answer.set_result(told["result"])
            elif told.get("sessionId") in self.tabs:
                self.tabs[told["sessionId"]].heard(told)


@contextlib.contextmanager
def running():
    """A browser of its own, for as long as the block lasts: the address that tabs are opened through."""
    program = find()
    with tempfile.TemporaryDirectory(prefix="aibrix-browser-", ignore_cleanup_errors=True) as folder:
        flags = [*_FLAGS, f"--user-data-dir={folder}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([program, *flags, "about:blank"], **quiet)
        try:
            yield _address(Path(folder), process)
        finally:
            process.terminate()
            process.wait()


def _address(folder, process):
    """Where the browser listens: it says so in a file, once it does."""
    said = folder / "DevToolsActivePort"
    deadline = time.monotonic() + WITHIN_S
    while not said.is_file() or len(lines := said.read_text().splitlines()) < 2:
        assert process.poll() is None, f"the browser ended with status {process.returncode}"
        assert time.monotonic() < deadline, "the browser does not listen"
        time.sleep(0.02)
    return f"ws://127.0.0.1:{lines[0]}{lines[1]}"


@contextlib.asynccontextmanager
async def tab(address):
    """An empty page of the browser at ``address``, closed with the block."""
    async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
        connection = _Connection(socket)
        listening = asyncio.create_task(connection.listen())
        try:
            target = (await connection.call("Target.createTarget", {"url": "about:blank"}))["targetId"]
            attached = await connection.call("Target.attachToTarget", {"targetId": target, "flatten": True})
            page = connection.tabs[attached["sessionId"]] = Tab(connection, attached["sessionId"])
            for domain in ("Page", "Runtime", "Log", "Accessibility"):
                await page.call(f"{domain}.enable")
            await page.call("Emulation.setFocusEmulationEnabled", enabled=True)  # of many tabs only one has the focus
            yield page
            await connection.call("Target.closeTarget", {"targetId": target})
        finally:
            listening.cancel()
