"""Reading what a client sent: path, headers and body become a :class:`~aibrix_operator.gateway.request.Request`.

Nothing of a body is changed, and nothing is kept of it but what routing reads.
"""
