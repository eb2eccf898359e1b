"""The runtime sidecar's wire contract and the client that speaks it. Both ends import it; it knows no other layer."""
