"""The gateway: Envoy carries every byte of traffic, and asks us where each request may go.

A request goes through four rooms, and nothing of ours runs per streamed chunk:

1. ``parsing.entry.parse`` reads the body into a :class:`~aibrix_operator.gateway.request.Request`, or refuses it;
2. ``decide.decide`` (pure) looks at the :class:`~aibrix_operator.gateway.view.View` and answers with a verdict;
3. a :class:`~aibrix_operator.gateway.limits.limiter.Limiter` admits it (one Redis script at most), and a lease counts
   it;
4. Envoy forwards it, and its access log tells how it ended (:mod:`~aibrix_operator.gateway.settlement`).
"""
