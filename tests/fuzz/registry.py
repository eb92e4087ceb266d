"""Every reader of bytes from outside: what `make fuzz` runs, and what the tests hold to bounds."""

from tests.fuzz.deployed_targets import DEPLOYED
from tests.fuzz.identity_targets import IDENTITIES
from tests.fuzz.model_targets import MODELS
from tests.fuzz.own_data_targets import OWN_DATA
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target for target in (*IDENTITIES, *MODELS, *DEPLOYED, *OWN_DATA)
}
