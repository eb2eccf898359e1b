"""The ModelAdapter kind: one LoRA adapter, loaded into the engines of the Pods that its selector takes.

The object's name is the adapter's name in the engines and the model that clients ask for.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints, WithJsonSchema

from aibrix_operator.api import names
from aibrix_operator.api.conditions import ConditionList
from aibrix_operator.api.modelclaim import MAX_TEXT, LabelSelector
from aibrix_operator.api.schema import Contract, Extend, Int32, Kind, PrinterColumn, rule

SCHEMES = ("s3://", "gcs://", "tos://", "huggingface://", "hf://")
MAX_REPLICAS = 1000
MAX_NAME = 63
API_KEY = "api-key"
"""Key of ``additionalConfig``: the bearer token of every call to engine and sidecar."""


class AdapterPhase(StrEnum):
    """An adapter in one word."""

    PENDING = "Pending"
    SCHEDULED = "Scheduled"
    BOUND = "Bound"
    RESOURCE_CREATED = "ResourceCreated"
    RUNNING = "Running"
    FAILED = "Failed"
    SCALED = "Scaled"
    UNKNOWN = "Unknown"


class ConditionType(StrEnum):
    """Condition types of an adapter."""

    INITIALIZED = "Initialized"
    SCHEDULED = "Scheduled"
    BOUND = "Bound"
    RESOURCE_CREATED = "ResourceCreated"
    READY = "Ready"


class Reason(StrEnum):
    """Condition and Event reasons of an adapter."""

    PENDING = "ModelAdapterPending"
    SCHEDULED = "Scheduled"
    RESCHEDULING = "Rescheduling"
    RESCHEDULED = "Rescheduled"
    MIGRATING = "AdapterMigrating"
    BOUND = "Bound"
    NOT_BOUND = "NotBound"
    NO_READY_PODS = "NoReadyPods"
    INSUFFICIENT_READY_PODS = "InsufficientReadyPods"
    LOADING_ERROR = "ModelAdapterLoadingError"
    UNAVAILABLE = "ModelAdapterUnavailable"
    AVAILABLE = "ModelAdapterAvailable"
    RESOURCES_CREATED = "ResourcesCreated"
    SERVICE_CREATE_ERROR = "ServiceCreateError"
    ENDPOINT_SLICE_CREATE_ERROR = "EndpointSliceCreateError"
    NAME_IN_USE = "NameInUse"
    INVALID_SPEC = "InvalidSpec"
    LOADED = "Loaded"
    LOST = "Lost"
    UNLOADED = "Unloaded"
    UNLOAD_FAILED = "UnloadFailed"
    GIVEN_UP = "GivenUp"
    ROUTE_FORBIDDEN = "HTTPRouteForbidden"


class SecretReference(Contract):
    """A Secret of the adapter's namespace."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    """Name of the Secret."""


_ConfigText = Annotated[str, StringConstraints(max_length=MAX_TEXT)]

_ARTIFACT_RULES = [
    rule(
        " || ".join(f"self.startsWith('{scheme}')" for scheme in (*SCHEMES, "/")),
        f"artifactURL must start with one of {', '.join(SCHEMES)} or be an absolute path",
    ),
    rule(
        "self.startsWith('/') || self.matches('^[a-z0-9]+://[^/?#]+')",
        "artifactURL names nothing after its scheme",
    ),
]


class ModelAdapterSpec(Contract):
    """What the user wants."""

    base_model: Annotated[str, StringConstraints(max_length=MAX_NAME)] | None = None
    """Name of the model that the adapter is for; it becomes a label of the Service."""
    pod_selector: Annotated[LabelSelector, Extend({"x-kubernetes-map-type": "atomic"})]
    """Pods of the adapter's namespace whose engines load it; an empty selector takes all."""
    artifact_url: Annotated[
        str,
        StringConstraints(min_length=1, max_length=MAX_TEXT),
        Extend({"x-kubernetes-validations": _ARTIFACT_RULES}),
        Field(alias="artifactURL"),
    ]
    """Where the adapter is: huggingface://…, hf://…, s3://…, gcs://…, tos://…, or a path on the Pod. When it is edited,
    the Pods load it anew, one after another."""
    credentials_secret_ref: SecretReference | None = None
    """Secret with the keys to the artifact; given to runtime sidecars only."""
    replicas: Annotated[Int32, Field(ge=1, le=MAX_REPLICAS)] | None = None
    """On how many Pods it is loaded; left out: on all that the selector takes."""
    scheduler_name: Annotated[str, StringConstraints(max_length=MAX_NAME)] = "default"
    """Taken for AIBrix's users; the policy is the operator's own setting."""
    additional_config: Annotated[dict[_ConfigText, _ConfigText], Extend({"maxProperties": 64})] | None = None
    """Handed to the runtime sidecar; the value of api-key is the bearer token of every call to the engine."""


class LoadedAdapter(Contract):
    """A Pod whose engine was told to load the adapter and has not been told to unload it."""

    pod: str
    """Name of the Pod."""
    artifact_url: Annotated[str, Field(alias="artifactURL")]
    """Where it was loaded from."""


class ModelAdapterStatus(Contract):
    """What was decided and seen."""

    phase: Annotated[AdapterPhase, Extend({})] | None = None
    """The adapter in one word."""
    candidates: Int32 = 0
    """Pods that the selector takes and that are ready."""
    ready_replicas: Int32 = 0
    """Pods whose engines have it loaded."""
    desired_replicas: Int32 = 0
    """Pods that are to have it."""
    instances: tuple[str, ...] = ()
    """Names of the Pods whose engines have it loaded; requests go to these."""
    loaded: tuple[LoadedAdapter, ...] = ()
    """Pods that hold it in memory, requests or not."""
    conditions: ConditionList = ()
    """Standard conditions: Initialized, Scheduled, Bound, ResourceCreated, Ready."""

    def to_patch(self) -> dict[str, Any]:
        """The status as a merge patch of it: an empty list is absent, and absence deletes what was there."""
        patch = self.model_dump(mode="json", by_alias=True)
        return patch | {key: patch[key] or None for key in ("instances", "loaded")}


class ModelAdapterSchema(Contract):
    """A ModelAdapter loads one LoRA adapter into the engines of running Pods. Its name is the model that clients ask
    for."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule(
                    f"self.metadata.name.size() <= {MAX_NAME} && "
                    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                    f"metadata.name must be at most {MAX_NAME} lower-case letters, digits and -, the first a letter: "
                    "it names the Service and the adapter in the engines",
                )
            ]
        }
    )

    api_version: str = Field(default="", description="Version of this representation, model.aibrix.ai/v1alpha1.")
    kind: str = Field(default="", description="ModelAdapter.")
    metadata: Annotated[dict[str, Any], WithJsonSchema({"type": "object"})] = Field(default_factory=dict)
    spec: ModelAdapterSpec
    """What the user wants."""
    status: ModelAdapterStatus | None = None
    """What was decided and seen; written by the operator."""


MODELADAPTER = Kind(
    group=names.MODEL_GROUP,
    version=names.MODEL_VERSION,
    kind="ModelAdapter",
    plural="modeladapters",
    singular="modeladapter",
    model=ModelAdapterSchema,
    columns=(
        PrinterColumn("Phase", "string", ".status.phase"),
        PrinterColumn("Desired", "integer", ".status.desiredReplicas"),
        PrinterColumn("Ready", "integer", ".status.readyReplicas"),
        PrinterColumn("Candidates", "integer", ".status.candidates"),
        PrinterColumn("Model Path", "string", ".spec.artifactURL"),
        PrinterColumn("Age", "date", ".metadata.creationTimestamp"),
        PrinterColumn("Why", "string", '.status.conditions[?(@.status=="False")].message', priority=1),
    ),
)
