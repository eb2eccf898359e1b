"""Three gateways that share a Redis, for a long time at half their peak while Pods and claims come and go."""
