"""What several replicas learned, shared through Redis, whatever it is: entities of a namespace, each an id and bytes.

A component owns an adapter (``syncable.py``); ``sync.StateSync`` runs the loop over all of them. This package knows no
component, and nothing of the gateway. See ``docs/statesync.md``.
"""
