"""Certificates for servers of tests: right ones, and every kind of wrong one."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key as files."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority of a test's own.

    Attributes:
        file: what those who trust it are given.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = _certificate(name, self._key, name, self._key, authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, label: str, host: str = "localhost", *, ended: bool = False) -> Certificate:
        """Return a server's certificate for `host`, a name or an address; `ended` yesterday."""
        key = ec.generate_private_key(ec.SECP256R1())
        until = datetime.now(UTC) + (-DAY if ended else DAY)
        return _written(
            self._folder, label, _certificate(self._name, self._key, label, key, host=host, until=until), key
        )


def self_signed(folder: Path, label: str, host: str = "localhost") -> Certificate:
    """Return a certificate that no one but itself vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _written(folder, label, _certificate(label, key, label, key, host=host), key)


def _written(
    folder: Path, label: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> Certificate:
    files = Certificate(folder / f"{label}.crt", folder / f"{label}.key")
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def _certificate(
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    *,
    host: str = "",
    until: datetime | None = None,
    authority: bool = False,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .issuer_name(_named(issuer))
        .subject_name(_named(subject))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - 10 * DAY)
        .not_valid_after(until or datetime.now(UTC) + DAY)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if host:
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(host)]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
