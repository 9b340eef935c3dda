"""Throw-away certificates and node keys for a deployment on one machine. Use your own authority elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

_LIFETIME = timedelta(days=1)


@dataclass(frozen=True)
class Certificates:
    """The files that a SuperLink with TLS needs."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class NodeKey:
    """The key pair by which a SuperNode is known."""

    private: Path
    public: Path


def write_certificates(folder: Path, host: str) -> Certificates:
    """Make an authority and a server certificate for one address, valid for a day."""
    authority = trustme.CA()
    server = authority.issue_cert(host, "localhost", not_after=datetime.now(UTC) + _LIFETIME)
    files = Certificates(folder / "ca.crt", folder / "server.pem", folder / "server.key")
    authority.cert_pem.write_to_path(files.authority)
    server.cert_chain_pems[0].write_to_path(files.certificate)
    _write_private(files.key, server.private_key_pem.bytes())
    return files


def write_node_key(folder: Path, name: str) -> NodeKey:
    """Make what `ssh-keygen -t ecdsa -b 384` makes."""
    key = ec.generate_private_key(ec.SECP384R1())
    files = NodeKey(folder / name, folder / f"{name}.pub")
    _write_private(
        files.private,
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        ),
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    files.public.write_bytes(public + b"\n")
    return files


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
