"""What a ModelWarmup brings onto a node: images, containers of the user's own, and models' files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints
from pydantic.config import JsonDict

from aibrix_operator.api.schema import Contract, Extend, rule

MAX_LIST = 32
MAX_IMAGE = 512
MAX_WORDS = 256
MAX_MOUNTS = 64

Image = Annotated[str, StringConstraints(min_length=1, max_length=MAX_IMAGE, pattern=r"^\S+$")]
Word = Annotated[str, StringConstraints(max_length=4096)]
DnsLabel = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
SecretName = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
    ),
]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
_BY_NAME = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
_OPEN: JsonDict = {"x-kubernetes-preserve-unknown-fields": True}


class LocalReference(Contract):
    """A Secret of the warmup's namespace."""

    name: SecretName
    """The Secret's name."""


class ImageSpec(Contract):
    """One image to pull."""

    image: Image
    """The image."""
    command: Annotated[tuple[Word, ...], Field(min_length=1, max_length=MAX_WORDS)]
    """What to run in it once it is there; it must end by itself with status 0."""
    args: Annotated[tuple[Word, ...], Extend({"maxItems": MAX_WORDS})] = ()
    """Arguments of the command."""
    image_pull_policy: PullPolicy | None = None
    """Absent counts as IfNotPresent."""

    @property
    def pull_policy(self) -> str:
        """Absent as IfNotPresent."""
        return self.image_pull_policy or "IfNotPresent"


PullSecrets = Annotated[tuple[LocalReference, ...], Extend({"maxItems": MAX_LIST})]


class ImagePreload(Contract):
    """Images that nodes pull."""

    images: Annotated[
        tuple[ImageSpec, ...],
        Extend({"maxItems": MAX_LIST, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["image"]}),
    ] = ()
    """The images, each once."""
    pull_secrets: PullSecrets = ()
    """Secrets that open their registries."""


class Mount(Contract):
    """A volume in a container, as far as it is looked at here."""

    model_config = ConfigDict(json_schema_extra=_OPEN)

    name: Annotated[str, StringConstraints(max_length=63)]
    """A volume that ``custom.volumes`` declares."""


class CustomContainer(Contract):
    """A container of core/v1, kept as it is written. Only these fields are looked at."""

    model_config = ConfigDict(
        json_schema_extra={
            **_OPEN,
            "x-kubernetes-validations": [
                rule("!has(self.restartPolicy)", "restartPolicy is not allowed: the Pod could not finish")
            ],
        }
    )

    name: DnsLabel
    """Its name, which no other container of the Pod has."""
    image: Image
    """Its image."""
    image_pull_policy: PullPolicy | None = None
    """When it is pulled."""
    restart_policy: Annotated[str, StringConstraints(max_length=32)] | None = None
    """Not allowed."""
    volume_mounts: Annotated[tuple[Mount, ...], Extend({"maxItems": MAX_MOUNTS})] = ()
    """Volumes in its file system."""
    volume_devices: Annotated[tuple[Mount, ...], Extend({"maxItems": MAX_MOUNTS})] = ()
    """Block volumes in it."""


class CustomVolume(Contract):
    """A volume of core/v1, kept as it is written: its name and its one source."""

    model_config = ConfigDict(json_schema_extra={**_OPEN, "minProperties": 2, "maxProperties": 2})

    name: DnsLabel
    """Its name."""


def _declared(containers: str, mounts: str) -> dict[str, Any]:
    return rule(
        f"!has(self.{containers}) || self.{containers}.all(c, !has(c.{mounts}) || c.{mounts}.all(m, "
        "has(self.volumes) && self.volumes.exists(v, v.name == m.name)))",
        f"{mounts} of {containers} must name declared volumes",
    )


Containers = Annotated[tuple[CustomContainer, ...], Extend({"maxItems": MAX_LIST, **_BY_NAME})]


class Custom(Contract):
    """Containers that do anything else on the node."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                *(_declared(c, m) for c in ("initContainers", "containers") for m in ("volumeMounts", "volumeDevices")),
                rule(
                    "!has(self.initContainers) || !has(self.containers) || "
                    "self.initContainers.all(i, !self.containers.exists(c, c.name == i.name))",
                    "names of containers and initContainers must differ",
                ),
            ]
        }
    )

    init_containers: Containers = ()
    """They run in order, before all others."""
    containers: Containers = ()
    """They run beside the images and weights."""
    volumes: Annotated[tuple[CustomVolume, ...], Extend({"maxItems": MAX_LIST, **_BY_NAME})] = ()
    """Volumes that they may mount."""
    image_pull_secrets: PullSecrets = ()
    """Secrets that open their registries."""


class Artifact(Contract):
    """One model's files."""

    url: Annotated[
        str,
        StringConstraints(
            min_length=1, max_length=2048, pattern=r"^(huggingface|hf|s3|tos|gcs|gs|https?)://\S+$|^/\S+$"
        ),
    ]
    """Where they are: huggingface://org/name, s3://bucket/prefix, gcs://bucket/prefix, https://host/file or a folder of
    the node."""
    path: Annotated[
        str,
        StringConstraints(
            min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$"
        ),
    ]
    """The folder below the cache that they come to. One folder holds one artifact."""


class Weights(Contract):
    """Model files that are fetched into a folder of the node. What is there already is not fetched again, and a fetch
    that was cut goes on where it was."""

    image: Image
    """This operator's image, whose ``fetch`` command does it."""
    artifacts: Annotated[
        tuple[Artifact, ...],
        Field(min_length=1, max_length=MAX_LIST),
        Extend({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["path"]}),
    ]
    """What to fetch."""
    host_path: Annotated[str, StringConstraints(max_length=512, pattern=r"^/[^\s:]*$")] = "/var/lib/aibrix/models"
    """The cache: a folder of the node."""
    credentials_secret: LocalReference | None = None
    """A Secret with keys such as huggingface_token or aws_access_key_id."""
