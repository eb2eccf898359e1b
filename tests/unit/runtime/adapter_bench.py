"""A sidecar's adapters over a scripted engine and a shelf of files, without HTTP in front."""

import json

from aiohttp import web


class AdapterEngineStandIn:
    """An engine's three routes about adapters; ``answers`` are (status, text) that come before the real ones."""

    def __init__(self, prefix="/v1"):
        self.loaded = {}
        self.calls = []
        self.answers = []
        self.app = web.Application()
        self.app.router.add_get("/v1/models", self._models)
        self.app.router.add_post(f"{prefix}/load_lora_adapter", self._load)
        self.app.router.add_post(f"{prefix}/unload_lora_adapter", self._unload)

    def _scripted(self, request, body=None):
        self.calls.append((request.path.rpartition("/")[2], body, request.headers.get("Authorization")))
        return web.Response(status=self.answers[0][0], text=self.answers.pop(0)[1]) if self.answers else None

    async def _models(self, request):
        listed = web.json_response({"object": "list", "data": [{"id": name} for name in self.loaded]})
        return self._scripted(request) or listed

    async def _load(self, request):
        body = await request.json()
        if (scripted := self._scripted(request, body)) is not None:
            return scripted
        if body["lora_name"] in self.loaded:
            text = json.dumps({"error": {"message": "The lora adapter has already been loaded."}})
            return web.Response(status=400, text=text)
        self.loaded[body["lora_name"]] = body["lora_path"]
        return web.Response(text="Success")

    async def _unload(self, request):
        body = await request.json()
        if (scripted := self._scripted(request, body)) is not None:
            return scripted
        found = self.loaded.pop(body["lora_name"], None)
        return web.Response(status=200 if found else 404, text="cannot be found" if not found else "Success")

    def named(self, action):
        return [body for name, body, _ in self.calls if name == action]
