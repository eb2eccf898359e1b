"""Everything between Envoy and the decision: its configuration, its process, and the services it reports to.

- ``config`` (with ``listener``, ``routes``, ``replies``, ``usage``) writes Envoy's whole static configuration as a pure
  function of :class:`~aibrix_operator.gateway.envoy.settings.EnvoySettings`;
- ``process`` starts and watches Envoy where it runs beside us on one machine;
- ``access_log`` turns its log stream into :mod:`~aibrix_operator.gateway.settlement` entries, ``ext_proc`` puts
  engines' errors into OpenAI's shape;
- ``running.run`` is all of it as one context manager.

How Envoy asks is in :mod:`aibrix_operator.gateway.wire`, beside what ``ext_authz`` cannot carry.
"""
