"""An engine's control routes, played from a script: what was called, and what each call answers."""

import asyncio
import json

from aiohttp import web

SILENT = None


class ScriptedEngine:
    """Answers each call with the next prepared answer of its path, 200 when none is left.

    An answer is a status, a (status, body) pair, or ``SILENT``, which never comes. ``bodies`` are answers of paths that
    always have the same one. ``sleeps`` says what its ``/is_sleeping`` reads: the last sleep or wake decides, a
    prepared answer comes first.
    """

    def __init__(self):
        self.calls, self.sent, self.answers, self.bodies = [], [], {}, {}
        self.sleeps = False
        self.wakes_on = {"/wake_up", "/wake_up?tags=scheduling"}
        self.door = None
        self.test_is_over = asyncio.Event()

    async def handle(self, request):
        path = request.path_qs
        body = await request.text()
        if path != "/metrics":
            self.calls.append(f"{request.method} {path}")
            self.sent.append((path, json.loads(body) if body else None))
        prepared = self.answers.get(path, [])
        answer = prepared.pop(0) if prepared else 200
        if answer is SILENT:
            await self.test_is_over.wait()
            return web.Response(status=503)
        status, text = answer if isinstance(answer, tuple) else (answer, None)
        if status == 200 and path.startswith("/sleep"):
            self.sleeps = True
        if status == 200 and path in self.wakes_on:
            self.sleeps = False
        if text is None and path == "/is_sleeping":
            text = json.dumps({"is_sleeping": self.sleeps})
        return web.Response(status=status, text=self.bodies.get(path, "") if text is None else text)

    def posts(self):
        """The changing calls, in their order."""
        return [call.removeprefix("POST ") for call in self.calls if call.startswith("POST ")]
