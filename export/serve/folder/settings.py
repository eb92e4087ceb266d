"""Settings of a server: where it listens and what one client may ask of it."""

from pathlib import Path

import msgspec

from export.serve.folder.folder import ServingError
from export.speaking.sentences import LONGEST_TEXT
from privacy.foundation.host_port import checked_host_port
from privacy.foundation.strict_decoding import decoded
from privacy.foundation.strict_toml import TomlError, read_toml

STARTING_SETTINGS = """\
# Read once, when the server starts.

# Unsigned bundles may be served only where this is true and no authority.crt is here.
accept_unsigned = {accept_unsigned}

kept_texts = 2000           # texts carried in memory, some 45 KB each with 10,000 words
personal_bytes = 536_870_912 # people's own tensors held in memory

[listen]
address = "127.0.0.1:8080"  # port 0 takes a free one
# certificate = "tls.crt"   # PEM, with its chain; needed on any address but loopback
# key = "tls.key"           # PEM, relative to this folder, as the certificate
# behind_tls_proxy = false  # true: another program on this network ends TLS
# grpc_address = "127.0.0.1:8081" # devices may ask over gRPC, too; with the same certificate
metrics_address = "127.0.0.1:8082" # figures for Prometheus; they tell when people type

[limits]
body_bytes = 1_048_576      # largest request
body_s = 10.0               # longest wait for a request's headers, and for its body
requests_per_second = 30.0  # of one client, on average
burst = 60                  # requests that a client may send at once
waiting_bytes = 268_435_456 # request bodies in memory, all clients together

[speech]
characters = 4096           # of a text that is said
at_once = 16                # texts that are being said, all clients together
at_once_of_one = 2          # texts of one client
"""


class ListenSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The addresses of a server.

    Attributes:
        address: ``host:port``; port 0 takes a free one.
        certificate: PEM file with the certificate and its chain, relative to the folder.
        key: PEM file of its key.
        behind_tls_proxy: Whether another program ends TLS, so that plain HTTP is right here.
        grpc_address: ``host:port`` for devices that ask over gRPC; absent means nowhere.
        metrics_address: ``host:port`` of ``/metrics``, whose figures tell when people type.
    """

    address: str = "127.0.0.1:8080"
    certificate: str | None = None
    key: str | None = None
    behind_tls_proxy: bool = False
    grpc_address: str | None = None
    metrics_address: str = "127.0.0.1:8082"

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key must be given together")
        self._check_address("address", self.address)
        if self.grpc_address is not None:
            self._check_address("grpc_address", self.grpc_address)
        self._check_address("metrics_address", self.metrics_address)

    def _check_address(self, name: str, address: str) -> None:
        is_loopback = checked_host_port(name, address).is_loopback
        if not is_loopback and self.certificate is None and not self.behind_tls_proxy:
            raise ValueError(
                f"{name} {address!r} is not loopback, so tokens and text would travel in "
                "the clear; give certificate and key, or set behind_tls_proxy"
            )

    def is_one_address(self, address: str) -> bool:
        """Return whether all callers of an address are one: this machine, or a proxy."""
        return self.behind_tls_proxy or checked_host_port("address", address).is_loopback


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of what one client may ask.

    Attributes:
        body_bytes: Largest body of a request.
        body_s: Longest wait for a request's headers, and again for its body, in seconds.
        requests_per_second: How many requests a client may send on average.
        burst: How many it may send at once after a pause.
        waiting_bytes: Largest sum of the bodies in memory, all clients together.
    """

    body_bytes: int = 1 << 20
    body_s: float = 10.0
    requests_per_second: float = 30.0
    burst: int = 60
    waiting_bytes: int = 1 << 28

    def __post_init__(self) -> None:
        for name in ("body_bytes", "body_s", "requests_per_second", "burst"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be > 0 and finite, got {getattr(self, name)}")
        if self.waiting_bytes < self.body_bytes:
            raise ValueError(
                f"waiting_bytes must be >= body_bytes {self.body_bytes}, got {self.waiting_bytes}"
            )


class SpeechSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of what is spoken.

    Attributes:
        characters: Most characters of one text.
        at_once: Most texts that are being said, all clients together; the rest are sent away.
        at_once_of_one: Most texts of one client.
    """

    characters: int = 4096
    at_once: int = 16
    at_once_of_one: int = 2

    def __post_init__(self) -> None:
        for name in ("at_once", "at_once_of_one"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not 1 <= self.characters <= LONGEST_TEXT:
            raise ValueError(f"characters must be in [1, {LONGEST_TEXT}], got {self.characters}")


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a server.

    Attributes:
        accept_unsigned: Whether bundles that nobody signed may be served. No default: it decides
            whose models people's devices believe.
        listen: Where it is reached.
        limits: The limits of one client.
        speech: How much is spoken.
        personal_bytes: People's own tensors held in memory, where a version has such.
        kept_texts: Texts that are carried in memory, some 45 KB each with 10,000 words.
    """

    accept_unsigned: bool
    listen: ListenSettings = ListenSettings()
    limits: LimitSettings = LimitSettings()
    speech: SpeechSettings = SpeechSettings()
    kept_texts: int = 2000
    personal_bytes: int = 1 << 29

    def __post_init__(self) -> None:
        for name in ("kept_texts", "personal_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")


def read_settings(path: Path) -> ServeSettings:
    """Read ``serve.toml`` strictly; ServingError if it is no TOML or has a wrong setting."""
    try:
        return decoded(read_toml(path), ServeSettings)
    except (TomlError, msgspec.ValidationError) as error:
        raise ServingError(f"{path}: {error}") from None
    except OSError as error:
        raise ServingError(f"{path} cannot be read: {error.strerror}") from None
