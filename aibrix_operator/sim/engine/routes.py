"""Which route is answered by what, and when it exists; errors leave in the words of the route's API."""

from collections.abc import Callable, Mapping
from typing import Never

from aibrix_operator.sim.engine import errors
from aibrix_operator.sim.engine.anthropic import Anthropic
from aibrix_operator.sim.engine.control import Control
from aibrix_operator.sim.engine.http import Handler, HttpRequest, Response, Router, Stream
from aibrix_operator.sim.engine.memory_release import MemoryRelease
from aibrix_operator.sim.engine.openai import OpenAI
from aibrix_operator.sim.engine.responses import Responses
from aibrix_operator.sim.engine.serving import Serving
from aibrix_operator.sim.engine.sglang_loras import SglangLoras


def build(serving: Serving, environ: Mapping[str, str], die: Callable[[Exception], Never]) -> Router:
    """The routes of one engine; ``die`` ends its process.

    As vLLM: sleep and wake exist in development mode only, the loading of adapters only where it is allowed.
    """
    control, openai, anthropic = Control(serving), OpenAI(serving), Anthropic(serving)
    router = Router()
    is_vllm = serving.arguments.kind == "vllm"
    router.add("GET", "/health", control.health)
    router.add("GET", "/metrics", control.metrics)
    router.add("GET", "/metrics/", control.metrics)
    router.add("GET", "/v1/models", openai.models)
    router.add("POST", "/v1/chat/completions", _refusing(openai.chat, errors.openai_response))
    router.add("POST", "/v1/completions", _refusing(openai.completions, errors.openai_response))
    if not is_vllm:
        _add_sglang(router, MemoryRelease(serving, die), SglangLoras(serving))
        return router
    router.add("GET", "/ping", control.health)
    router.add("POST", "/ping", control.health)
    router.add("GET", "/version", control.version)
    router.add("POST", "/v1/responses", _refusing(Responses(serving).create, errors.openai_response))
    router.add("POST", "/tokenize", _refusing(openai.tokenize, errors.openai_response))
    router.add("POST", "/v1/messages", _refusing(anthropic.messages, errors.anthropic_response))
    router.add("POST", "/v1/messages/count_tokens", _refusing(anthropic.count_tokens, errors.anthropic_response))
    if _is_on(environ, "VLLM_SERVER_DEV_MODE"):
        router.add("GET", "/is_sleeping", control.is_sleeping)
        router.add("POST", "/sleep", _refusing(control.sleep, errors.openai_response), finishes=True)
        router.add("POST", "/wake_up", _refusing(control.wake_up, errors.openai_response), finishes=True)
    if _is_on(environ, "VLLM_ALLOW_RUNTIME_LORA_UPDATING"):
        router.add("POST", "/v1/load_lora_adapter", _refusing(control.load_lora, errors.openai_response))
        router.add("POST", "/v1/unload_lora_adapter", _refusing(control.unload_lora, errors.openai_response))
    return router


def _add_sglang(router: Router, memory: MemoryRelease, loras: SglangLoras) -> None:
    router.add("GET", "/server_info", memory.server_info)
    router.add("GET", "/health_generate", memory.generate_one)
    router.add("POST", "/flush_cache", memory.flush_cache)
    router.add("POST", "/load_lora_adapter", _refusing(loras.load, errors.openai_response))
    router.add("POST", "/unload_lora_adapter", _refusing(loras.unload, errors.openai_response))
    for path, handler in (
        ("/pause_generation", memory.pause),
        ("/continue_generation", memory.resume_generation),
        ("/release_memory_occupation", memory.release),
        ("/resume_memory_occupation", memory.resume_memory),
    ):
        router.add("POST", path, _refusing(handler, errors.openai_response), finishes=True)


def _refusing(handler: Handler, shape: Callable[[errors.ApiError], Response]) -> Handler:
    async def answer(request: HttpRequest) -> Response | Stream:
        try:
            return await handler(request)
        except errors.ApiError as error:
            return shape(error)

    return answer


def _is_on(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").lower() in ("1", "true")
