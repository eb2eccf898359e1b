"""The only package with a Kubernetes client: calls, watches, own writes, work queues and Events.

It knows the API server and asyncio, and nothing of what the controllers decide. Everything runs in one event loop and
takes its time from that loop, so that a loop with virtual time drives it too.
"""
