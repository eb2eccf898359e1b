"""Values that users set: each variant is rendered, linted, checked by checkov and tried on a real API server."""

from __future__ import annotations

from typing import Any

_RESOURCES = {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": 4, "memory": "4Gi"}}
_PLACED = {
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}]
            }
        }
    },
    "priorityClassName": "system-cluster-critical",
}
_PEERS = [{"namespaceSelector": {"matchLabels": {"team": "a"}}, "podSelector": {}}]

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "named-otherwise": {"fullnameOverride": "models", "commonLabels": {"team": "a"}, "commonAnnotations": {"x": "y"}},
    "one-namespace": {"scope": {"namespace": "pool-a"}},
    "pools-elsewhere": {"warmPools": {"namespaces": ["pool-b", "pool-a"], "alsoFrom": _PEERS}},
    "artifact-secrets": {
        "artifactSecrets": [
            {"namespace": "pool-a", "names": ["hub-token"]},
            {"namespace": "pool-b", "names": ["hub-token", "bucket"]},
        ]
    },
    "gangs-and-routes": {
        "orchestration": {"podGroups": ["volcano", "godel"]},
        "modelAdapters": {"httpRoutes": True},
    },
    "gangs-and-routes-of-one-namespace": {
        "scope": {"namespace": "pool-a"},
        "orchestration": {"podGroups": ["coscheduling"]},
        "modelAdapters": {"httpRoutes": True},
    },
    "one-replica": {"operator": {"replicas": 1}, "gateway": {"replicas": 1}},
    "no-gateway": {"gateway": {"enabled": False}},
    "own-redis": {"redis": {"enabled": True, "maxMemory": "1gb"}},
    "redis-elsewhere": {"redis": {"existingSecret": "redis-url"}, "gateway": {"redisAway": "closed"}},
    "tls": {"gateway": {"tls": {"secretName": "gateway-tls"}}},
    "load-balancer": {
        "gateway": {
            "service": {
                "type": "LoadBalancer",
                "port": 8443,
                "externalTrafficPolicy": "Local",
                "annotations": {"a": "b"},
                "labels": {"c": "d"},
            }
        }
    },
    "keys-and-users": {
        "gateway": {"keys": {"existingSecret": "k"}, "users": {"mode": "require", "existingSecret": "u"}}
    },
    "http-route": {
        "gateway": {
            "httpRoute": {
                "enabled": True,
                "parentRefs": [{"name": "public", "namespace": "gateways"}],
                "hostnames": ["models.example.org"],
            }
        }
    },
    "pod-monitor": {"monitoring": {"podMonitor": {"enabled": True, "interval": "30s", "labels": {"release": "prom"}}}},
    "all-to-see": {
        "monitoring": {"alerts": {"enabled": True}, "dashboards": {"enabled": True}, "podMonitor": {"enabled": True}},
        "warmPools": {"namespaces": ["pool-a", "pool-b"]},
    },
    "no-page": {"operator": {"page": {"enabled": False}}},
    "no-definitions": {"crds": {"enabled": False}},
    "definitions-go": {"crds": {"keep": False}},
    "own-token": {"runtimeToken": {"existingSecret": "our-token"}},
    "no-token": {"runtimeToken": {"enabled": False}},
    "no-disruption-budgets": {
        "operator": {"podDisruptionBudget": {"enabled": False}},
        "gateway": {"podDisruptionBudget": {"enabled": False}},
    },
    "placed": {"operator": _PLACED, "gateway": _PLACED, "redis": {"enabled": True, **_PLACED}},
    "sized": {
        "operator": {"resources": _RESOURCES},
        "gateway": {"resources": _RESOURCES, "envoy": {"concurrency": 4, "resources": _RESOURCES}},
    },
    "digests": {
        "image": {"repository": "registry.example:5000/ai/aibrix-operator", "digest": f"sha256:{'0' * 64}"},
        "imagePullSecrets": [{"name": "registry"}],
        "gateway": {"envoy": {"image": {"digest": f"sha256:{'1' * 64}"}}},
    },
    "tight-network": {
        "networkPolicy": {"clientsFrom": _PEERS, "metricsFrom": [], "apiServerPorts": [6443], "engines": False}
    },
    "extra": {
        "operator": {
            "extraArgs": ["--log-level=DEBUG"],
            "extraEnv": [{"name": "TZ", "value": "UTC"}],
            "podLabels": {"p": "q"},
            "podAnnotations": {"r": "s"},
        },
        "gateway": {
            "extraArgs": ["--metrics-by-pod"],
            "extraEnv": [{"name": "AIBRIX_PREFIX_CACHE_BLOCK_SIZE", "value": "16"}],
            "defaultStrategy": "",
            "podSelector": "serve=yes",
            "graceSeconds": 0,
        },
    },
}
