"""Models, loads and questions for tests of routing strategies, with only what matters to a row said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from aibrix_operator.gateway.knobs import Knobs
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.request import Api, Request
from aibrix_operator.gateway.strategies.base import Ask, Pick, Routing, Strategy
from aibrix_operator.gateway.view import Endpoint, EngineMetrics, Model

NOW_S = 1_800_000_000.0


def make_endpoint(pod: str, *, model: str = "m", port: int = 8000, uid: str = "", ready_s: float = 0.0, namespace="ns"):
    return Endpoint(
        model=model, namespace=namespace, pod=pod, uid=uid or f"uid-{namespace}-{pod}",
        address=f"10.0.0.{int(pod.strip('p') or 0) + 1}:{port}", ready_since_s=ready_s,
    )  # fmt: skip


def make_model(pods: int, name: str = "m", ready_s: Sequence[float] = ()) -> Model:
    ages = ready_s or [0.0] * pods
    return Model(name, tuple(make_endpoint(f"p{i}", model=name, ready_s=ages[i]) for i in range(pods)))


def load(loads: Loads, model: Model, counts: Sequence[int]) -> Loads:
    """Requests of ours that run: as many as ``counts`` says, endpoint by endpoint."""
    for endpoint, count in zip(model.endpoints, counts, strict=True):
        for _ in range(count):
            loads.add(endpoint)
    return loads


def metrics_of(model: Model, *figures: Mapping[str, float] | None) -> dict[str, EngineMetrics]:
    """Endpoint by endpoint; None: the engine was not read."""
    return {
        endpoint.address: EngineMetrics(NOW_S, **said)
        for endpoint, said in zip(model.endpoints, figures, strict=True)
        if said is not None
    }


def make_request(text: str = "", *, headers: Mapping[str, str] | None = None, user: str | None = None) -> Request:
    return Request(
        id="r", api=Api.CHAT, path="/v1/chat/completions", model="m", headers=headers or {}, user=user,
        prompt_bytes=len(text.encode()), text_of=lambda: text,
    )  # fmt: skip


def make_ask(
    model: Model,
    counts: Sequence[int] = (),
    *,
    loads: Loads | None = None,
    metrics: Mapping[str, EngineMetrics] | None = None,
    request: Request | None = None,
    knobs: Knobs | None = None,
    candidates: Sequence[Endpoint] | None = None,
    now_s: float = NOW_S,
    seed: int | Random = 1,
) -> Ask:
    return Ask(
        request=request or make_request(),
        model=model,
        candidates=model.endpoints if candidates is None else candidates,
        loads=load(loads or Loads(), model, counts) if counts else loads or Loads(),
        metrics=metrics or {},
        knobs=knobs or Knobs(),
        now_s=now_s,
        random=seed if isinstance(seed, Random) else Random(seed),
    )


def drawn(chooser: Strategy | Routing, ask: Ask, times: int) -> Counter[str]:
    """Pod → how often it was picked, loads held constant."""
    return Counter(chooser.pick(ask).endpoint.pod for _ in range(times))


def pod_of(pick: Pick) -> str:
    return pick.endpoint.pod
