"""ModelWarmups: one Job a node, a few at a time, until each node has what it is to have."""
