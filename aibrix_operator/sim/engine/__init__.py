"""A stand-in for an inference engine: vLLM 0.32's HTTP surface over simulated GPU memory, as one small process.

Started as SGLang it answers chat, metrics, the calls around the release of its memory and those about adapters.

``__main__`` starts it, ``routes`` and ``http`` answer, ``scheduler`` runs requests and sleeps, ``memory`` keeps the
books with the cards and the KV segment. It starts in a fraction of a second, so nothing heavy may be imported here:
no aiohttp, no pydantic, no prometheus-client.
"""
