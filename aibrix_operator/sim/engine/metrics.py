"""The engine's counters and its ``/metrics`` page: vLLM's names and labels in the Prometheus text format.

Written by hand because importing prometheus-client costs a simulated engine a good part of its start. Left out: the
families of the Python process and of vLLM's HTTP middleware, and figures of hardware that is not simulated.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")

_LATENCY = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160)
_PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_SLEEP = (0.01, 0.1, 1, 10, 30, 60, 120, 300, 600)

Labels = Mapping[str, str]
_COUNTERS = {
    "prefix_cache_queries": "Prefix cache queries, in terms of number of queried tokens.",
    "prefix_cache_hits": "Prefix cache hits, in terms of number of cached tokens.",
    "num_preemptions": "Cumulative number of preemption from the engine.",
    "prompt_tokens": "Number of prefill tokens processed.",
    "prompt_tokens_cached": "Number of cached prompt tokens (local + external).",
    "generation_tokens": "Number of generation tokens processed.",
}


class Histogram:
    """Counts by upper bound; the last bucket is +Inf."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(map(float, bounds))
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def samples(self, name: str, labels: Labels) -> Iterable[str]:
        total = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            yield _sample(f"{name}_bucket", {**labels, "le": str(bound)}, total)
        yield _sample(f"{name}_count", labels, total)
        yield _sample(f"{name}_sum", labels, self._sum)


@dataclass(frozen=True, slots=True)
class Gauges:
    """What is read at the moment of a scrape."""

    running: int
    waiting: int
    usage: float
    asleep_level: int  # 0 awake (or only not scheduling), 1 weights offloaded, 2 all discarded
    running_loras: str
    waiting_loras: str
    limit_bytes: int
    tokens_in_limit: int


class Metrics:
    """All counters of one engine."""

    def __init__(self, model_name: str, max_model_len: int, max_loras: int) -> None:
        self._model = {"engine": "0", "model_name": model_name}
        self._max_loras = max_loras
        self._created = time.time()
        self.counters = dict.fromkeys(_COUNTERS, 0)
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        sizes = _one_two_five(max_model_len)
        self.histograms = {
            "request_prompt_tokens": Histogram(sizes),
            "request_generation_tokens": Histogram(sizes),
            "iteration_tokens_total": Histogram(_STEP_TOKENS),
            "request_max_num_generation_tokens": Histogram(sizes),
            "request_params_n": Histogram((1, 2, 5, 10, 20)),
            "request_params_max_tokens": Histogram(sizes),
            "time_to_first_token_seconds": Histogram((*_FIRST_TOKEN, 640, 2560)),
            "inter_token_latency_seconds": Histogram(_PER_TOKEN),
            "request_time_per_output_token_seconds": Histogram(_PER_TOKEN),
            "e2e_request_latency_seconds": Histogram(_LATENCY),
            "request_queue_time_seconds": Histogram(_LATENCY),
            "request_inference_time_seconds": Histogram(_LATENCY),
            "request_prefill_time_seconds": Histogram(_LATENCY),
            "request_decode_time_seconds": Histogram(_LATENCY),
            "request_num_preemptions": Histogram((1, 2, 3, 4, 5, 10, 20)),
            "request_prefill_kv_computed_tokens": Histogram(sizes),
        }
        self.sleep_operations = {"sleep": Histogram(_SLEEP), "wake": Histogram(_SLEEP)}
        self.sleep_operations_in_flight = {"sleep": 0, "wake": 0}

    def vllm_page(self, gauges: Gauges) -> str:
        """The page as vLLM 0.32 writes it."""
        page = _Page("vllm:")
        model = self._model
        page.gauge("num_requests_running", "Number of requests in model execution batches.", (model, gauges.running))
        page.gauge("num_requests_waiting", "Number of requests waiting to be processed.", (model, gauges.waiting))
        page.gauge(
            "num_requests_waiting_by_reason",
            "Number of waiting requests by reason.",
            ({**model, "reason": "capacity"}, gauges.waiting),
            ({**model, "reason": "deferred"}, 0),
        )
        states = ("awake", "weights_offloaded", "discard_all")
        page.gauge(
            "engine_sleep_state",
            "Engine sleep state.",
            *(({**model, "sleep_state": name}, gauges.asleep_level == level) for level, name in enumerate(states)),
        )
        page.gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", (model, gauges.usage))
        for name, text in _COUNTERS.items():
            page.counter(name, text, self._created, (model, self.counters[name]))
        self._by_source(page)
        page.counter(
            "request_success",
            "Count of successfully processed requests.",
            self._created,
            *(({**model, "finished_reason": reason}, count) for reason, count in self.finished.items()),
        )
        for name, histogram in self.histograms.items():
            page.histogram(name, self._created, (model, histogram))
        loras = {"running_lora_adapters": gauges.running_loras, "waiting_lora_adapters": gauges.waiting_loras}
        page.gauge(
            "lora_requests_info",
            "Running stats on lora requests.",
            ({"max_lora": str(self._max_loras), **loras}, time.time()),
        )
        page.gauge("cache_config_info", "Information of the CacheConfig.", (self._cache_config(gauges), 1))
        page.histogram(
            "sleep_mode_operation_duration_seconds",
            self._created,
            *(({"operation": name}, histogram) for name, histogram in self.sleep_operations.items()),
        )
        page.gauge(
            "sleep_mode_operations_in_flight",
            "Sleep-mode operations currently awaited.",
            *(({"operation": name}, count) for name, count in self.sleep_operations_in_flight.items()),
        )
        return page.text()

    def sglang_page(self, gauges: Gauges) -> str:
        """The few families of SGLang that say how busy it is."""
        page = _Page("sglang:")
        model = {"model_name": self._model["model_name"]}
        page.gauge("num_running_reqs", "The number of running requests.", (model, gauges.running))
        page.gauge("num_queue_reqs", "The number of requests in the waiting queue.", (model, gauges.waiting))
        page.gauge("token_usage", "The token usage.", (model, gauges.usage))
        for name in ("prompt_tokens", "generation_tokens"):
            page.counter(name, _COUNTERS[name], self._created, (model, self.counters[name]))
        page.counter(
            "num_requests", "Number of requests processed.", self._created, (model, sum(self.finished.values()))
        )
        for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds"):
            page.histogram(name, self._created, (model, self.histograms[name]))
        return page.text()

    def _by_source(self, page: "_Page") -> None:
        computed = {"local_compute": self.counters["prompt_tokens"], "local_cache_hit": 0, "external_kv_transfer": 0}
        page.counter(
            "prompt_tokens_by_source",
            "Number of prompt tokens by source.",
            self._created,
            *(({**self._model, "source": source}, count) for source, count in computed.items()),
        )

    def _cache_config(self, gauges: Gauges) -> Labels:
        return {
            "engine": "0",
            "block_size": "1",
            "cache_dtype": "auto",
            "enable_prefix_caching": "False",
            "kv_cache_memory_bytes": str(gauges.limit_bytes),
            "kv_cache_size_tokens": str(gauges.tokens_in_limit),
            "num_gpu_blocks": str(gauges.tokens_in_limit),
        }


class _Page:
    """Lines of the text format, family by family."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._lines: list[str] = []

    def gauge(self, name: str, text: str, *samples: tuple[Labels, float]) -> None:
        self._family(name, text, "gauge", lambda full: (_sample(full, *sample) for sample in samples))

    def counter(self, name: str, text: str, created: float, *samples: tuple[Labels, float]) -> None:
        self._family(f"{name}_total", text, "counter", lambda full: (_sample(full, *sample) for sample in samples))
        self.gauge(f"{name}_created", text, *((labels, created) for labels, _ in samples))

    def histogram(self, name: str, created: float, *samples: tuple[Labels, Histogram]) -> None:
        text = f"Histogram of {name.replace('_', ' ')}."
        self._family(
            name,
            text,
            "histogram",
            lambda full: (line for labels, histogram in samples for line in histogram.samples(full, labels)),
        )
        self.gauge(f"{name}_created", text, *((labels, created) for labels, _ in samples))

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def _family(self, name: str, text: str, kind: str, samples: Callable[[str], Iterable[str]]) -> None:
        full = self._prefix + name
        self._lines += (f"# HELP {full} {text}", f"# TYPE {full} {kind}", *samples(full))


def _sample(name: str, labels: Labels, value: float) -> str:
    pairs = ",".join(f'{key}="{_escape(labels[key])}"' for key in sorted(labels))
    return f"{name}{{{pairs}}} {float(value)}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _one_two_five(top: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, ... up to ``top``, as vLLM sizes its token histograms by the model's length."""
    sizes = [step * 10**power for power in range(len(str(top))) for step in (1, 2, 5)]
    return tuple(size for size in sizes if size <= top)
