"""What can go wrong with an artifact. ``is_worth_retrying`` tells what time cures from what the user must."""

from __future__ import annotations

from typing import ClassVar


class ArtifactError(Exception):
    """The artifact is not in its folder. The text names it without credentials."""

    is_worth_retrying: ClassVar[bool] = False


class AddressError(ArtifactError):
    """The address is none that can be fetched."""


class NotFoundError(ArtifactError):
    """There is nothing at the address."""


class NotAllowedError(ArtifactError):
    """The credentials, or their absence, do not open the address."""


class FolderError(ArtifactError):
    """The folder cannot be written."""

    is_worth_retrying: ClassVar[bool] = True


class NoRoomError(ArtifactError):
    """The disk cannot hold what is still missing."""

    is_worth_retrying: ClassVar[bool] = True


class UnreachableError(ArtifactError):
    """Whoever holds the artifact does not answer, or not with it."""

    is_worth_retrying: ClassVar[bool] = True


class ChangedError(ArtifactError):
    """The artifact became another one while it was fetched. The next try lists it anew."""

    is_worth_retrying: ClassVar[bool] = True
