"""Encryption at rest: Fernet (AES-128-CBC with HMAC-SHA256), a key of its own for each secret.

The keys are derived with HKDF-SHA256 from the configured ones, with the scope's and the key's name
as context: a value that is copied to another row does not decrypt there. The first configured key
encrypts; all of them decrypt, so that a key can be replaced (`manage.py reencrypt_secrets`).
"""

from __future__ import annotations

import base64

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


class CannotDecrypt(Exception):
    """The value was encrypted with a key that is not configured any more."""


def encrypt(scope: str, key: str, value: bytes) -> bytes:
    """A value as it is kept."""
    return _fernet(scope, key).encrypt(value)


def decrypt(scope: str, key: str, kept: bytes | memoryview) -> bytes:
    """The value that `encrypt` was given.

    Raises:
        CannotDecrypt: None of the configured keys fits.
    """
    try:
        return _fernet(scope, key).decrypt(bytes(kept))
    except InvalidToken:
        raise CannotDecrypt(f"{scope}/{key}") from None


def _fernet(scope: str, key: str) -> MultiFernet:
    context = f"shoal secret\0{scope}\0{key}".encode()
    return MultiFernet([Fernet(_derived(root, context)) for root in _roots()])


def _roots() -> list[str]:
    """The configured keys, the encrypting one first; Django's own key comes last."""
    fallbacks = [str(key) for key in settings.SECRET_KEY_FALLBACKS]
    return [*settings.SECRETS_KEYS, settings.SECRET_KEY, *fallbacks]


def _derived(root: str, context: bytes) -> bytes:
    derivation = HKDF(algorithm=SHA256(), length=32, salt=None, info=context)
    return base64.urlsafe_b64encode(derivation.derive(root.encode()))
