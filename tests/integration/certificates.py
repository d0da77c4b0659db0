"""Certificates: an authority of the tests' own signs what brokers show, in PEM; some have expired."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

HOST = IPv4Address("127.0.0.1")


@dataclass(frozen=True)
class Authority:
    """A certificate authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, name: str) -> Authority:
        """Make an authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        begin = datetime.now(UTC) - timedelta(days=100)
        builder = _builder(_named(name), key.public_key(), _named(name), begin, timedelta(days=200))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    def write(self, file: Path) -> Path:
        """Write the certificate, by which clients know what the authority has signed."""
        file.write_bytes(self.certificate.public_bytes(Encoding.PEM))
        return file

    def write_signed(self, file: Path, days: int) -> Path:
        """Write a key and a certificate for this machine that expires in so many days, or did so many days ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        begin, length = datetime.now(UTC) - timedelta(days=50), timedelta(days=50 + days)
        builder = _builder(_named("broker"), key.public_key(), self.certificate.subject, begin, length)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(HOST)]), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file.write_bytes(pem + certificate.public_bytes(Encoding.PEM))
        return file


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, issuer: x509.Name, begin: datetime, length: timedelta
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(begin + length)
