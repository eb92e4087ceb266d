"""Count what the server does, for Prometheus: never by client, and never anything of a text."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

CONTENT_TYPE = CONTENT_TYPE_LATEST


class ServingMetrics:
    """The counters of one server.

    Attributes:
        requests: Requests answered, by route and status.
        seconds: How long they took from the first byte, by route.
        under_way: Requests not answered yet.
        reloads: Attempts to serve what was promoted, by outcome (``served``, ``refused``).
        round: Round of the version that is served.
        personal_models: People's own tensors in memory.
        personal_loads: Personal files that had to be loaded.
        spoken_seconds: Sound that was made, in seconds.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "sotto_requests", "Requests answered", ["route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "sotto_request_seconds",
            "Seconds from a request's first byte to its answer",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.under_way = self._gauge("sotto_requests_under_way", "Requests not answered yet")
        self.waiting_bytes = self._gauge("sotto_waiting_bytes", "Bodies and own answers in memory")
        self.reloads = Counter(
            "sotto_reloads", "Attempts to serve a version", ["outcome"], registry=self._registry
        )
        self.round = self._gauge("sotto_release_round", "Round of the version that is served")
        self.texts = self._gauge("sotto_texts", "Texts carried in memory")
        self.clients = self._gauge("sotto_clients", "Clients that have a token")
        self.personal_models = self._gauge(
            "sotto_personal_models", "People's own tensors in memory"
        )
        self.personal_loads = Counter(
            "sotto_personal_loads", "Personal files loaded", registry=self._registry
        )

        self.speeches = self._gauge("sotto_speeches", "Texts that are being said")
        self.spoken_seconds = Counter(
            "sotto_spoken_seconds", "Seconds of sound made", registry=self._registry
        )

    def exposition(self) -> bytes:
        """Return every figure in Prometheus' text format."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, explanation: str) -> Gauge:
        return Gauge(name, explanation, registry=self._registry)
