"""The outcome of an audit: written as ``audit.json``, shown on its page, printed by its command."""

import msgspec

from privacy.auditing.exposure import Exposure
from privacy.auditing.judgement import in_words, verdict
from simulation.auditing.mechanism import MechanismAudit
from simulation.auditing.uploads import RoundLeakage


class SecretsAudit(msgspec.Struct, frozen=True, kw_only=True):
    """How exposed planted sentences are in a model; no perplexity without test text."""

    exposure: Exposure
    repetitions: int
    model_round: int
    test_perplexity: float | None


class AuditResult(msgspec.Struct, frozen=True, kw_only=True):
    """An audit of a preset or file; a part that was not asked for is None.

    ``guarantee`` is the promise of the noise mode in words; ``canaries`` are about the mechanism,
    ``leakage`` about one round, ``secrets`` about the trained model.
    """

    name: str
    guarantee: str
    canaries: MechanismAudit | None
    leakage: RoundLeakage | None
    secrets: SecretsAudit | None

    @property
    def faults(self) -> list[str]:
        """Return what contradicts the claim, a sentence each."""
        return [] if self.canaries is None else self.canaries.faults

    @property
    def verdict(self) -> str:
        """Return in one line what the canaries say about the claim."""
        if self.canaries is None:
            return "The mechanism was not audited."
        return verdict(self.canaries)

    def figures(self) -> dict[str, str]:
        """Return the figures in words, by what they are, in the order to read them in."""
        shown = {"guarantee": self.guarantee}
        if self.canaries is not None:
            shown["noise claimed"] = self.canaries.claimed_against
            shown |= in_words(self.canaries)
        if self.leakage is not None:
            for seen, leak in (("upload", self.leakage.upload), ("release", self.leakage.release)):
                shown[f"words from one {seen}, AUC"] = (
                    f"{leak.by_both:.3f} (rows {leak.by_row:.3f}, bias {leak.by_bias:.3f})"
                )
            shown["words from public frequency, AUC"] = f"{self.leakage.upload.by_frequency:.3f}"
        if self.secrets is not None:
            found = self.secrets.exposure
            shown["exposure of planted sentences"] = (
                f"{found.mean_bits:.1f} of {found.largest_possible_bits:.1f} bits on average, "
                f"chance {found.chance:.2g} if nothing was learned"
            )
        return shown
