"""SGLang's routes for LoRA adapters. Every engine has them, and all refusals are a 400 in a shape of their own.

As in SGLang, what ``/v1/models`` lists is asked for as ``base:adapter`` or by ``lora_path``; the bare name of one
means nothing to it, and the base model answers.
"""

from typing import Any

from aibrix_operator.sim.engine import errors
from aibrix_operator.sim.engine.control import is_adapter
from aibrix_operator.sim.engine.http import HttpRequest, Response, json_response
from aibrix_operator.sim.engine.serving import Serving

_NOT_ENABLED = "LoRA is not enabled. Please set `--enable-lora` to enable LoRA."


class SglangLoras:
    """The handlers; each answers one route of ``routes``."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def load(self, http: HttpRequest) -> Response:
        required = {"lora_name": errors.STRING, "lora_path": errors.STRING}
        body = errors.read_body(http, required, {"pinned": errors.BOOLEAN})
        name, path = body["lora_name"], body["lora_path"]
        if not self._serving.arguments.enable_lora:
            return self._refused(_NOT_ENABLED)
        if name in self._serving.loras:
            return self._refused(f"Failed to load LoRA adapter {name} because it is already loaded")
        if not is_adapter(path):
            return self._refused(f"Failed to load LoRA adapter {name} from {path}: adapter_config.json is not there")
        self._serving.loras[name] = path
        return self._done()

    async def unload(self, http: HttpRequest) -> Response:
        name = errors.read_body(http, {"lora_name": errors.STRING}, {})["lora_name"]
        if not self._serving.arguments.enable_lora:
            return self._refused(_NOT_ENABLED)
        if name not in self._serving.loras:
            loaded = self._serving.loras.keys()
            return self._refused(f"LoRA with name {name} does not exist. Loaded LoRAs: {loaded}")
        del self._serving.loras[name]
        return self._done()

    def _done(self) -> Response:
        return json_response(_result(None, dict(self._serving.loras)))

    def _refused(self, message: str) -> Response:
        return json_response(_result(message, None), 400)


def _result(error: str | None, loaded: dict[str, str] | None) -> dict[str, Any]:
    return {"success": error is None, "error_message": error, "loaded_adapters": loaded}
