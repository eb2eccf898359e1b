"""``least-latency``: where an average request waits, prefills and decodes fastest."""

from __future__ import annotations

from collections.abc import Sequence

from aibrix_operator.gateway.strategies import choosing
from aibrix_operator.gateway.strategies.base import Ask, Pick

PROMPT_TOKENS = 10.0
GENERATED_TOKENS = 100.0
"""Of an average request, where no engine has served one."""


class LeastLatency(choosing.Stateless):
    """Times of an engine depend on the requests that it got, so they are scaled to one request equal for all."""

    name = "least-latency"
    lower_is_better = True

    def pick(self, ask: Ask) -> Pick:
        """See ``Strategy``."""
        return choosing.lowest(ask, self.scores(ask))

    def scores(self, ask: Ask) -> Sequence[float | None]:
        """Seconds: queue + prefill per own prompt token × everyone's + decode per own generated token × everyone's."""
        read = [ask.metrics.get(endpoint.address) for endpoint in ask.candidates]
        prompts = _mean([m.prompt_tokens_mean for m in read if m is not None], PROMPT_TOKENS)
        generated = _mean([m.generated_tokens_mean for m in read if m is not None], GENERATED_TOKENS)
        scores: list[float | None] = []
        for m in read:
            if m is None or m.queue_mean_s is None or m.prefill_mean_s is None or m.decode_mean_s is None:
                scores.append(None)
                continue
            prefill_s = m.prefill_mean_s / (m.prompt_tokens_mean or prompts) * prompts
            decode_s = m.decode_mean_s / (m.generated_tokens_mean or generated) * generated
            scores.append(m.queue_mean_s + prefill_s + decode_s)
        return scores


def _mean(figures: Sequence[float | None], default: float) -> float:
    """Over those above zero."""
    said = [figure for figure in figures if figure is not None and figure > 0]
    return sum(said) / len(said) if said else default
