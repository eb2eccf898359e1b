"""Stories on real nodes: what only a kubelet, a container runtime and a cluster's network can show."""
