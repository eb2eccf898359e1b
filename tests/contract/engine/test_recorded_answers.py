"""The stand-in engine against what vLLM 0.32.0 was recorded to answer: every request, in the recorded order.

Statuses, content types and every field must be the same; values too, but for the few that say which answer it is.
"""

import asyncio
import json
import re
from pathlib import Path

import aiohttp
import pytest
from engine_process import Launcher, until
from prometheus_client.parser import text_string_to_metric_families

HERE = Path(__file__).parent
RECORDED = {entry["name"]: entry for entry in json.loads((HERE / "vllm-0.32.0-answers.json").read_text())}
RECORDED_METRICS = (HERE / "vllm-0.32.0-metrics.txt").read_text()

HANGS = "chat asleep"
STREAM_EVENTS = 602  # role, 600 tokens, [DONE]
LONG_STREAM = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 600,
    "ignore_eos": True,
    "stream": True,
}
# Field -> why its value may differ. Its type may not.
VARIES = {
    "id": "random",
    "created": "time",
    "created_at": "time",
    "content": "the answer's text",
    "text": "the answer's text",
    "system_fingerprint": "names the build",
    "prompt_tokens": "another tokenizer",
    "total_tokens": "another tokenizer",
    "input_tokens": "another tokenizer",
    "original_input_tokens": "another tokenizer",
    "count": "another tokenizer",
    "tokens": "another tokenizer",
}
# Family (regular expression) -> why the stand-in does not offer it.
METRICS_NOT_OFFERED = {
    r"(python|process)_.*": "figures of the recorded server's own Python process",
    r"http_.*": "vLLM's web framework's own figures; nothing reads them",
    r"vllm:estimated_.*": "arithmetic of hardware that is not simulated",
    r"vllm:external_prefix_cache_.*": "there is no KV connector to another instance",
    r"vllm:mm_cache_.*": "the simulated models read text only",
    r"vllm:admission_rejections.*": "no queue limit is simulated",
    r"vllm:prompt_tokens_cached_by_source.*": "no cache tiers are simulated",
}
# Its labels are vLLM's whole cache configuration; ours are those that have a meaning here.
CONFIG_METRIC = "vllm:cache_config_info"


async def _ask(engine, entry):
    request = entry["request"]
    body = json.dumps(request["json"]) if request["json"] is not None else request["raw"]
    headers = {} if body is None else {"content-type": "application/json"}
    timeout = aiohttp.ClientTimeout(total=0.5 if entry["name"] == HANGS else 20)
    try:
        async with engine.request(
            request["method"], request["path"], data=body, headers=headers, timeout=timeout
        ) as answer:
            text = (await answer.read()).decode()
            return {"status": answer.status, "content_type": answer.headers.get("content-type"), "body": text}
    except TimeoutError:
        return {"error": "TimeoutError()"}


class _LongStream:
    """A long chat stream in the background, as the recording had one when the engine was put to sleep."""

    def __init__(self, engine):
        self.events = []
        self._task = asyncio.create_task(self._read(engine))

    async def _read(self, engine):
        async with engine.request("POST", "/v1/chat/completions", json=LONG_STREAM) as answer:
            assert answer.status == 200
            async for line in answer.content:
                if line.startswith(b"data:"):
                    self.events.append(line.strip())

    async def under_way(self):
        await until(lambda: len(self.events) > 3, "the stream is under way")

    async def end(self):
        await asyncio.wait_for(self._task, 20)
        return self.events


async def _replay(folder):
    """Recorded name -> what the stand-in did."""
    (folder / "lora1").mkdir()
    (folder / "lora1" / "adapter_config.json").write_text("{}")
    (folder / "profiles.json").write_text(json.dumps({"tiny": {"boot_seconds": 0, "tokens_per_second": 300}}))
    environ = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "AIBRIX_SIM_PROFILES": str(folder / "profiles.json"),
    }
    async with aiohttp.ClientSession() as session:
        launcher = Launcher(folder, session)
        try:
            engine = await launcher.up("tiny", "--max-model-len", "1024", "--enable-lora", environ=environ)
            seen, stream = {}, None
            for name, entry in RECORDED.items():
                if "streaming" in name:
                    stream = _LongStream(engine)
                    await stream.under_way()
                if "request" in entry:
                    seen[name] = await _ask(engine, entry)
                else:
                    seen[name] = await stream.end()
            seen["metrics"] = (await engine.get("/metrics"))[1]
            return seen
        finally:
            launcher.end()


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    return asyncio.run(_replay(tmp_path_factory.mktemp("replay")))


def _shape(value, field=""):
    """The value with what varies replaced by its type; the elements of a list that varies count once."""
    if isinstance(value, dict):
        return {key: _shape(item, key) for key, item in value.items()}
    if isinstance(value, list):
        shapes = [_shape(item, field) for item in value]
        return shapes[:1] if field in VARIES else shapes
    return type(value).__name__ if field in VARIES else value


def _events(body):
    """The shapes of a stream's events; repeated ones, one a token, count once."""
    assert body.endswith("\n\n")
    shapes = []
    for block in body.removesuffix("\n\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        data = lines.pop("data")
        shape = (lines, data if data == "[DONE]" else _shape(json.loads(data)))
        _forget_running_counts(shape[1])
        if not shapes or shapes[-1] != shape:
            shapes.append(shape)
    return shapes


def _forget_running_counts(shape):
    """A token's event differs from the next one's in its running count only; the ends of the count are tested below."""
    if isinstance(shape, dict) and shape.get("choices") and "usage" in shape:
        shape["usage"]["completion_tokens"] = "int"


def _comparable(answer):
    if answer["content_type"] is None or answer["content_type"].startswith("text/plain"):
        return answer["body"]
    if answer["content_type"].startswith("text/event-stream"):
        return _events(answer["body"])
    value = json.loads(answer["body"])
    return value if answer["status"] >= 400 else _shape(value)


ANSWERED = [name for name, entry in RECORDED.items() if "status" in entry and name != "metrics asleep"]


def test_the_recording_is_whole():
    assert len(RECORDED) == 51
    assert len(ANSWERED) == 46


@pytest.mark.parametrize("name", ANSWERED)
def test_an_answer_is_the_recorded_one(seen, name):
    recorded, answer = RECORDED[name], seen[name]
    assert (answer["status"], answer["content_type"]) == (recorded["status"], recorded["content_type"])
    assert _comparable(answer) == _comparable(recorded)


def test_a_request_sent_to_a_sleeping_engine_hangs(seen):
    assert seen[HANGS] == {"error": RECORDED[HANGS]["error"]}


def test_the_metrics_page_answers_while_asleep(seen):
    recorded, answer = RECORDED["metrics asleep"], seen["metrics asleep"]
    assert (answer["status"], answer["content_type"]) == (recorded["status"], recorded["content_type"])
    assert 'vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="weights_offloaded"} 1.0' in answer["body"]


@pytest.mark.parametrize("name", ["stream when put to sleep", "stream after wake"])
def test_sleep_ends_a_stream_early_and_cleanly(seen, name):
    *events, last, done = seen[name]
    assert RECORDED[name]["observed"].endswith("last=b'data: [DONE]\\n'")
    assert done == b"data: [DONE]"
    assert len(events) < STREAM_EVENTS - 2
    assert json.loads(last[6:])["choices"][0]["finish_reason"] == "abort"


def test_level_0_in_mode_wait_lets_a_stream_finish(seen):
    events = seen["stream with level 0 wait"]
    assert RECORDED["stream with level 0 wait"]["observed"].startswith(f"{STREAM_EVENTS} events")
    assert len(events) == STREAM_EVENTS
    assert json.loads(events[-2][6:])["choices"][0]["finish_reason"] == "length"


def test_continuous_usage_counts_every_token(seen):
    lines = seen["chat stream continuous usage"]["body"].split("\n\n")[:-2]
    counts = [json.loads(line[6:])["usage"] for line in lines]
    assert [usage["completion_tokens"] for usage in counts] == [0, 1, 2, 3, 3]
    assert all(usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] for usage in counts)


def _samples(page):
    """Family -> (its type, {sample name -> label names})."""
    return {
        family.name: (family.type, {(s.name, tuple(sorted(s.labels))) for s in family.samples})
        for family in text_string_to_metric_families(page)
    }


def test_metrics_have_the_recorded_names_types_and_labels(seen):
    expected = {
        name: samples
        for name, samples in _samples(RECORDED_METRICS).items()
        if not any(re.fullmatch(pattern, name) for pattern in METRICS_NOT_OFFERED)
    }
    offered = _samples(seen["metrics"])
    config = expected.pop(CONFIG_METRIC), offered.pop(CONFIG_METRIC)
    assert offered == expected
    (_, [(_, recorded_labels)]), (_, [(_, labels)]) = config
    assert set(labels) < set(recorded_labels)


def test_every_reason_to_leave_a_metric_out_is_needed(seen):
    recorded = _samples(RECORDED_METRICS)
    for pattern in METRICS_NOT_OFFERED:
        assert any(re.fullmatch(pattern, name) for name in recorded), pattern
        assert not any(re.fullmatch(pattern, name) for name in _samples(seen["metrics"])), pattern


def test_counters_count_what_was_replayed(seen):
    samples = {
        (s.name, s.labels.get("finished_reason")): s.value
        for family in text_string_to_metric_families(seen["metrics"])
        for s in family.samples
    }
    recorded = {
        (s.name, s.labels.get("finished_reason")): s.value
        for family in text_string_to_metric_families(RECORDED_METRICS)
        for s in family.samples
        if s.name == "vllm:request_success_total"
    }
    assert {key: samples[key] for key in recorded} == recorded
