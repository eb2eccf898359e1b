"""Requests through a simulated engine: waiting, running, finished; and the sleep that stops them.

One timer drives all running requests: at each step it admits what fits, pays out tokens for the time that passed and
ends what is complete. Single-threaded: every method runs in the event loop, and HTTP code waits on ``Request.news``.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Literal

from aibrix_operator.sim.engine import tokens
from aibrix_operator.sim.engine.memory import Grant, Memory
from aibrix_operator.sim.engine.metrics import Gauges, Metrics
from aibrix_operator.sim.engine.profile import Profile

Mode = Literal["abort", "wait", "keep"]
TAGS = ("weights", "kv_cache", "scheduling")

_SHORTEST_STEP_S = 0.001  # what the event loop's timer resolves; faster models pay out several tokens a step
_LONGEST_STEP_S = 0.02  # slow models too admit and prefill at once
_RETRY_S = 0.05  # how soon room is looked for again, when nothing runs that could free some


class Request:
    """One prompt and its answer so far."""

    def __init__(
        self, prompt_tokens: int, max_tokens: int, answer: tokens.Answer, lora: str | None, now: float
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.answer = answer
        self.lora = lora
        self.produced = 0
        self.finish_reason: str | None = None  # None while it waits or runs
        self.preemptions = 0
        self.prefill_left = 0.0  # tokens to compute before the next one comes
        self.credit = 0.0  # the part of the next token that is already paid for
        self.arrived = now
        self.started: float | None = None
        self.first_token: float | None = None
        self.news = asyncio.Event()

    @property
    def tokens(self) -> int:
        """What it needs KV for, the next token included."""
        return self.prompt_tokens + self.produced + 1

    @property
    def most_tokens(self) -> int:
        """What it needs KV for when its whole answer is there."""
        return self.prompt_tokens + self.answer.length + 1

    async def outputs(self) -> AsyncIterator[tuple[range, bool]]:
        """Positions of new tokens as they come, and whether the answer is over with them.

        An answer that a sleep cuts off ends with an empty range.
        """
        seen = 0
        while True:
            await self.news.wait()
            self.news.clear()
            over, end = self.finish_reason is not None, self.produced
            if end > seen or over:
                yield range(seen, end), over
                seen = end
            if over:
                return


class Scheduler:
    """Runs requests on simulated memory. ``on_out_of_memory`` ends the process; it does not return in an engine."""

    def __init__(
        self, profile: Profile, memory: Memory, metrics: Metrics, on_out_of_memory: Callable[[Exception], None]
    ) -> None:
        self._profile = profile
        self._memory = memory
        self._metrics = metrics
        self._die = on_out_of_memory
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._kv_tokens = 0
        self._asleep: set[str] = set()  # of TAGS
        self._frozen = False  # running requests stand still too (mode "keep")
        self._level = 0
        self._changed = asyncio.Event()  # something ended or woke: who waits for that looks again
        self._operation = asyncio.Lock()  # one move of weights at a time
        self._timer: asyncio.TimerHandle | None = None
        self._last_step = 0.0

    @property
    def is_sleeping(self) -> bool:
        return bool(self._asleep)

    @property
    def is_paused(self) -> bool:
        return "scheduling" in self._asleep

    @property
    def has_memory(self) -> bool:
        """Whether weights and KV are on the card."""
        return not self._asleep & {"weights", "kv_cache"}

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, and nothing waits that is about to: SGLang's condition for touching its memory."""
        return not self._running and (self.is_paused or not self._waiting)

    async def until_unpaused(self) -> None:
        while self.is_paused:
            self._changed.clear()
            await self._changed.wait()

    def gauges(self) -> Gauges:
        limit = self._memory.limit_bytes
        return Gauges(
            running=len(self._running),
            waiting=len(self._waiting),
            usage=self._memory.usage,
            asleep_level=self._level,
            running_loras=",".join(sorted({r.lora for r in self._running if r.lora})),
            waiting_loras=",".join(sorted({r.lora for r in self._waiting if r.lora})),
            limit_bytes=limit,
            tokens_in_limit=limit // max(self._profile.kv_bytes_per_token, 1),
        )

    def submit(self, prompt_tokens: int, max_tokens: int, answer: tokens.Answer, lora: str | None = None) -> Request:
        """Queue a request; while the engine sleeps it waits until somebody wakes it."""
        request = Request(prompt_tokens, max_tokens, answer, lora, self._now())
        self._waiting.append(request)
        self._step_soon()
        return request

    def abort(self, request: Request) -> None:
        """End a request whose client is gone; one that is over stays as it is. vLLM counts no such request."""
        if request.finish_reason is None:
            self._end(request, "abort")
            self._memory_follows()
            self._step_soon()

    async def sleep(self, level: int, mode: Mode) -> None:
        """Stop scheduling; from level 1 on also free the KV and put the weights away. Sleeping twice is harmless."""
        self._asleep.add("scheduling")
        if mode == "abort":
            for request in [*self._running, *self._waiting]:
                self._finish(request, "abort")
            self._memory_follows()
        elif mode == "wait":
            while self._running and "scheduling" in self._asleep:
                self._changed.clear()
                await self._changed.wait()
        else:
            self._frozen = True
        if level == 0:
            return
        async with self._operation:
            if "scheduling" not in self._asleep or "weights" in self._asleep:
                return  # woken while it waited, or asleep already
            for request in reversed(self._running.copy()):  # only in mode "keep" are there any
                self._preempt(request)
            self._asleep.update(TAGS)
            await asyncio.sleep(self._profile.sleep_seconds)
            self._memory.sleep()
            self._level = level
        self._step_soon()  # if the segment was locked, it is told later

    async def wake(self, tags: tuple[str, ...] | None, *, resumes: bool = True) -> None:
        """Bring back what ``tags`` name, None for all.

        Scheduling starts again when all memory is back, unless ``resumes`` is False: SGLang's waits for a call of its
        own.
        """
        async with self._operation:
            wanted = set(TAGS if tags is None else tags) & self._asleep
            if "weights" in wanted:
                await asyncio.sleep(self._profile.wake_seconds)
                try:
                    self._memory.wake()
                except MemoryError as error:
                    self._die(error)
                    raise
            self._asleep -= wanted
            if not self._asleep & {"weights", "kv_cache"}:
                self._level = 0
                if wanted and resumes:
                    self._asleep.discard("scheduling")
            self._frozen = self._frozen and "scheduling" in self._asleep
        self._changed.set()
        self._step_soon()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _step_soon(self) -> None:
        """Start the timer if it stands still; while it runs, the next step comes soon enough."""
        if self._timer is None:
            self._last_step = self._now()
            self._step_after(0.0)

    def _step_after(self, delay: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay, self._step)

    def _step(self) -> None:
        self._timer = None
        now = self._now()
        elapsed, self._last_step = now - self._last_step, now
        try:
            self._memory.publish()
            if not self._frozen:
                self._advance(elapsed, now)
            if not self._asleep:
                self._admit(now)
        except MemoryError as error:
            self._die(error)
            raise
        if self._running and not self._frozen:
            self._step_after(min(max(1 / self._profile.tokens_per_second, _SHORTEST_STEP_S), _LONGEST_STEP_S))
        elif (self._waiting and not self._asleep) or not self._memory.is_published:
            self._step_after(_RETRY_S)

    def _admit(self, now: float) -> None:
        while self._waiting and len(self._running) < self._profile.max_running_requests:
            request = self._waiting[0]
            if request.preemptions and not self._memory.fits(self._kv_tokens + request.most_tokens):
                return  # else it would be admitted and preempted again at every step
            if self._memory.resize(self._kv_tokens + request.tokens) is not Grant.GIVEN:
                return
            self._waiting.popleft()
            self._running.append(request)
            self._kv_tokens += request.tokens
            request.prefill_left = float(request.tokens - 1)
            if request.started is None:
                request.started = now
                self._metrics.counters["prompt_tokens"] += request.prompt_tokens
                self._metrics.counters["prefix_cache_queries"] += request.prompt_tokens

    def _advance(self, elapsed: float, now: float) -> None:
        step_tokens = 0
        for request in self._running.copy():
            if request not in self._running:
                continue  # preempted for an older one in this step
            left = elapsed - request.prefill_left / self._profile.prefill_tokens_per_second
            if left < 0:
                request.prefill_left -= elapsed * self._profile.prefill_tokens_per_second
                continue
            if request.prefill_left:
                # The last prefill step yields the first token.
                request.prefill_left, request.credit = 0.0, 1.0
            request.credit += left * self._profile.tokens_per_second
            due = min(int(request.credit), request.answer.length - request.produced)
            if due and self._make_room(request, due):
                request.credit -= due
                self._pay_out(request, due, now)
                step_tokens += due
        if step_tokens:
            self._metrics.histograms["iteration_tokens_total"].observe(step_tokens)
            self._memory_follows()

    def _make_room(self, request: Request, due: int) -> bool:
        """Have KV mapped for ``due`` more tokens, at the cost of younger requests if the limit says so."""
        while request in self._running:
            grant = self._memory.resize(self._kv_tokens + due)
            if grant is Grant.GIVEN:
                self._kv_tokens += due
                return True
            if grant is Grant.BUSY:
                return False
            self._preempt(self._running[-1])
        return False

    def _pay_out(self, request: Request, due: int, now: float) -> None:
        request.produced += due
        self._metrics.counters["generation_tokens"] += due
        pace = 1 / self._profile.tokens_per_second
        if request.first_token is None:
            request.first_token = now
            self._metrics.histograms["time_to_first_token_seconds"].observe(now - request.arrived)
            due -= 1
        if due:
            self._metrics.histograms["inter_token_latency_seconds"].observe(pace, due)
        if request.produced == request.answer.length:
            self._finish(request, request.answer.finish_reason)
        request.news.set()

    def _preempt(self, request: Request) -> None:
        """Back to the head of the queue; its KV is computed anew when it runs again."""
        self._running.remove(request)
        self._kv_tokens -= request.tokens
        self._waiting.appendleft(request)
        request.preemptions += 1
        self._metrics.counters["num_preemptions"] += 1
        self._memory_follows()

    def _finish(self, request: Request, reason: str) -> None:
        self._end(request, reason)
        self._record(request, reason)

    def _end(self, request: Request, reason: str) -> None:
        if request in self._running:
            self._running.remove(request)
            self._kv_tokens -= request.tokens
        else:
            self._waiting.remove(request)
        request.finish_reason = reason
        request.news.set()
        self._changed.set()

    def _memory_follows(self) -> None:
        self._memory.resize(self._kv_tokens)

    def _record(self, request: Request, reason: str) -> None:
        now = self._now()
        self._metrics.finished[reason] += 1
        started = now if request.started is None else request.started
        first = now if request.first_token is None else request.first_token
        figures = {
            "request_prompt_tokens": request.prompt_tokens,
            "request_generation_tokens": request.produced,
            "request_max_num_generation_tokens": request.produced,
            "request_params_n": 1,
            "request_params_max_tokens": request.max_tokens,
            "request_num_preemptions": request.preemptions,
            "request_prefill_kv_computed_tokens": request.prompt_tokens,
            "e2e_request_latency_seconds": now - request.arrived,
            "request_queue_time_seconds": started - request.arrived,
            "request_inference_time_seconds": now - started,
            "request_prefill_time_seconds": first - started,
            "request_decode_time_seconds": now - first,
            "request_time_per_output_token_seconds": (now - first) / max(request.produced - 1, 1),
        }
        for name, value in figures.items():
            self._metrics.histograms[name].observe(value)
