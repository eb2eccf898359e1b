"""The runtimes of all simulated Pods behind their addresses: the calls of ``runtime_api.client.RuntimeClient``.

A call is told to whoever watches, goes wrong as its sidecar has it, is held against the sidecar's fence, and is then
carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

from aibrix_operator.api.term import Term
from aibrix_operator.runtime.fence import StaleTermError
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.outcome import Done, NotSent, Outcome, Refused, Unknown
from aibrix_operator.sim.sender import SENDER
from aibrix_operator.sim.sidecar import Call, Later, SimulatedRuntime

AnswerT = TypeVar("AnswerT", bound=wire.Answer)


class SimulatedRuntimes:
    """All sidecars by Pod address; the calls of ``runtime_api.client.RuntimeClient``."""

    def __init__(self) -> None:
        self.by_ip: dict[str, SimulatedRuntime] = {}
        self.history: list[tuple[float, str, Call]] = []
        """(virtual second, Pod address, call) of every call that changes something, as it arrived."""
        self.called: Callable[[str, wire.Request], None] = lambda ip, request: None
        """Told of every call that changes something, as it arrives at an address."""
        self.done: Callable[[SimulatedRuntime, Term | None], None] = lambda runtime, term: None
        """Told of every such call as it is carried out, with the term that it was sent in."""
        self.answered: Callable[[str, wire.Snapshot | None], None] = lambda ip, snapshot: None
        """Told of every snapshot that the controller is given, None when it is given none."""

    def _runtime(self, base: str) -> SimulatedRuntime | None:
        return self.by_ip.get(_ip(base))

    async def snapshot(self, base: str) -> Outcome[wire.Snapshot]:
        return await self._see(base)

    async def _see(self, base: str) -> Outcome[wire.Snapshot]:
        runtime = self._runtime(base)
        if runtime is None:
            self.answered(_ip(base), None)
            return NotSent(f"cannot connect to {base}")
        runtime.fence.hear_of(_term())
        if runtime.before_snapshot is not None and (result := await runtime.before_snapshot()) is not None:
            self.answered(_ip(base), None)
            return result
        snapshot = runtime.snapshot()
        self.answered(_ip(base), snapshot)
        return Done(snapshot)

    async def changes(self, base: str, since: str, timeout_s: float) -> Outcome[wire.ChangesResponse]:
        runtime = self._runtime(base)
        if runtime is not None and not runtime.has_feed:
            return Refused(f"runtime at {base} refused the call with status 404: Not Found", 404)
        if runtime is not None and not await runtime.has_waited(since, timeout_s):
            self.answered(_ip(base), None)
            return Unknown(f"runtime at {base} broke off its answer")
        version = "" if runtime is None else runtime.version()
        outcome = await self._see(base)
        if not isinstance(outcome, Done):
            return outcome
        return Done(wire.ChangesResponse(version=version, snapshot=outcome.answer))

    async def activate(self, base: str, request: wire.ActivateRequest) -> Outcome[wire.ActivateResponse]:
        call: Call = ("activate", request.model_name, 0, "")
        return await self._call(base, call, request, lambda runtime: runtime.activate(request))

    async def deactivate(self, base: str, request: wire.DeactivateRequest) -> Outcome[wire.DeactivateResponse]:
        call: Call = ("deactivate", request.model_name, 0, "")
        return await self._call(base, call, request, lambda runtime: runtime.deactivate(request.model_name))

    async def sleep(self, base: str, request: wire.SleepRequest) -> Outcome[wire.OperationResponse]:
        call: Call = ("sleep", request.model_name, 0, request.operation_id)
        return await self._call(base, call, request, lambda runtime: runtime.carry_out_sleep(request))

    async def wake(self, base: str, request: wire.WakeRequest) -> Outcome[wire.OperationResponse]:
        call: Call = ("wake", request.model_name, 0, request.operation_id)
        return await self._call(base, call, request, lambda runtime: runtime.carry_out_wake(request))

    async def set_kv_limit(self, base: str, request: wire.KVLimitRequest) -> Outcome[wire.OperationResponse]:
        call: Call = ("kv-limit", request.model_name, request.limit_bytes, request.operation_id)
        return await self._call(base, call, request, lambda runtime: runtime.set_kv_limit(request))

    async def _call(
        self, base: str, call: Call, request: wire.Request, carry_out: Callable[[SimulatedRuntime], Outcome[AnswerT]]
    ) -> Outcome[AnswerT]:
        runtime, term = self._runtime(base), _term()
        if term is None and _needs_term():
            return NotSent(f"this operator does not lead, so the runtime at {base} was not called")
        if runtime is None:
            return NotSent(f"cannot connect to {base}")
        runtime.calls.append(call)
        self.history.append((asyncio.get_running_loop().time(), _ip(base), call))
        self.called(_ip(base), request)

        def arrive() -> Outcome[AnswerT]:
            try:
                runtime.fence.admit(term)
            except StaleTermError as error:
                return Refused(str(error), HTTPStatus.CONFLICT)
            self.done(runtime, term)
            return carry_out(runtime)

        if runtime.before_call is not None and (result := await runtime.before_call(call)) is not None:
            if isinstance(result, Later):
                asyncio.get_running_loop().call_later(result.seconds, arrive)
                return Unknown(f"the runtime at {base} did not answer in time")
            return result
        answer = arrive()
        if runtime.after_call is not None and (result := runtime.after_call(call)) is not None:
            if isinstance(result, Later):
                asyncio.get_running_loop().call_later(result.seconds, arrive)
                return answer
            return result
        return answer


def _needs_term() -> bool:
    """Whether it is one of several operators that calls."""
    sender = SENDER.get()
    return sender is not None and sender.stands_for_election


def _term() -> Term | None:
    """The term in which the caller leads, as its calls carry it."""
    sender = SENDER.get()
    return None if sender is None else sender.term


def _ip(base: str) -> str:
    return base.removeprefix("http://").rpartition(":")[0]
