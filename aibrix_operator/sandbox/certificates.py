"""A certificate authority for one sandbox: serving certificates, and client certificates that name a user.

Keys are P-256, made in a millisecond, and never leave the sandbox's folder. Nothing here is meant for production.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID_FOR = datetime.timedelta(days=365)
_CLOCK_SKEW = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, stem: Path) -> tuple[Path, Path]:
        """Write ``<stem>.crt`` and ``<stem>.key`` (mode 0600); returns their paths in this order."""
        certificate, key = stem.with_suffix(".crt"), stem.with_suffix(".key")
        certificate.write_bytes(self.certificate)
        write_secret(key, self.key)
        return certificate, key


class Authority:
    """One self-signed root and what it signs."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, subject, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self._root = builder.sign(self._key, hashes.SHA256())

    def pair(self) -> KeyPair:
        """The root's own certificate and key, for a controller that signs requests."""
        return KeyPair(self.certificate, _pem(self._key))

    @property
    def certificate(self) -> bytes:
        """The root certificate (PEM), for whoever has to trust what it signs."""
        return self._root.public_bytes(serialization.Encoding.PEM)

    def server(self, names: Sequence[str], addresses: Sequence[str]) -> KeyPair:
        """A serving certificate for DNS ``names`` and IP ``addresses``; it may act as a client too, as etcd's must."""
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, names[0])]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(subject, usages, x509.SubjectAlternativeName(alternatives))

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """A certificate by which the API server knows ``user`` in ``groups``."""
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        subject += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        return self._issue(subject, [ExtendedKeyUsageOID.CLIENT_AUTH], None)

    def _issue(
        self,
        subject: list[x509.NameAttribute[str]],
        usages: list[x509.ObjectIdentifier],
        alternatives: x509.SubjectAlternativeName | None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(x509.Name(subject), self._root.subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage(usages), critical=False
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def signing_key() -> bytes:
    """A fresh private key (PEM) for signing ServiceAccount tokens."""
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from the first byte on."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALID_FOR)
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
