"""``kubectl aibrix``: what ``aibrix-operator`` shows of a cluster, and the one request that users may make of it."""
