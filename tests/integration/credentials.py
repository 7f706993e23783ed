"""Credentials that a test makes for itself: an issuer of signed tokens, and an authority that signs certificates."""

import datetime
import json
import ssl
import time
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


class Issuer:
    """Signs JSON web tokens (ES256) with a key of its own.

    Attributes:
        name: what its tokens say in `iss`.
        jwks: the public key as a JSON web key set.
    """

    def __init__(self, name: str = "https://issuer.test") -> None:
        self.name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        numbers = self._key.public_key().public_numbers()
        x, y = (_base64url(number.to_bytes(32, "big")) for number in (numbers.x, numbers.y))
        self.jwks = json.dumps({"keys": [{"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": "1", "x": x, "y": y}]})

    def token(self, *, valid_s: float = 600.0, **claims: Any) -> str:
        """A token with these claims, valid from a minute ago until `valid_s` from now."""
        now_s = time.time()
        stated = {"iss": self.name, "nbf": int(now_s - 60), "exp": int(now_s + valid_s)} | claims
        signed = f"{_part({'alg': 'ES256', 'typ': 'JWT', 'kid': '1'})}.{_part(stated)}"
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_base64url(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def bearer(self, *, valid_s: float = 600.0, **claims: Any) -> dict[str, str]:
        """The request header that carries such a token."""
        return {"authorization": f"Bearer {self.token(valid_s=valid_s, **claims)}"}


def unsigned(**claims: Any) -> str:
    """A token that claims to need no signature."""
    return f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(claims)}."


class Authority:
    """Signs certificates; everything it makes lies as PEM files in `folder`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(name)
        certificate = self._sign(name, self._key, x509.BasicConstraints(ca=True, path_length=0), [])
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(certificate)

    def issue(self, name: str, sans: Sequence[x509.GeneralName]) -> tuple[Path, Path]:
        """Certificate and key of `name`, with these subject alternative names."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate, private = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(self._sign(name, key, x509.BasicConstraints(ca=False, path_length=None), sans))
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return certificate, private

    def client(self, name: str, *uris: str) -> ssl.SSLContext:
        """A client that shows a certificate of this authority with these URIs."""
        context = self.stranger()
        context.load_cert_chain(*self.issue(name, [x509.UniformResourceIdentifier(uri) for uri in uris]))
        return context

    def stranger(self) -> ssl.SSLContext:
        """A client that trusts this authority and shows no certificate."""
        context = ssl.create_default_context(cafile=str(self.path))
        context.check_hostname = False  # servers are reached by address, and only this authority's are trusted
        return context

    def _sign(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        constraints: x509.BasicConstraints,
        sans: Sequence[x509.GeneralName],
    ) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_common_name(name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(constraints, critical=True)
        )
        if sans:
            builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _part(fields: dict[str, Any]) -> str:
    return _base64url(json.dumps(fields).encode())


def _base64url(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()
