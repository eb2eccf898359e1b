"""``aibrix-operator doctor``: names what is missing or wrong in a cluster, and what to do about it. Changes nothing."""
