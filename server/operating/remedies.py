"""What an operator can do about devices that refuse a plan, by the code that they send.

The codes of the devices' side are theirs (`edge_client/wire/refusal_lines.py`); what is not named
here is told by its code alone, with where to look.
"""

_OF_ONE = {
    "accountant_unusable": "these devices need the extra dp-sgd for example_privacy",
    "bytes_a_day": "send fewer bytes (docs/send-fewer-bytes.md), or open fewer rounds a day",
    "certificate_unusable": "renew the coordinator's certificates, or look at the devices' clocks",
    "data_unusable": "their owners look at `sotto-client doctor --data PATH`",
    "disk": "their owners make room",
    "floor_plugin": "their owners install the plan's plugin and name it in floor.toml (plugins)",
    "helper_certificate": "`sotto-helper renew`, then `sotto-server admit-helper`",
    "out_of_memory": "a smaller model, batch_size or bptt_steps",
    "plan_not_signed": "are these devices of this federation? They may need to enrol again",
    "plugin_unusable": "install the plan's plugin anew on these devices, in its very version",
}
_OF_FLOORS = (
    "the plan asks for more than their owners allow: weaken it, or ask owners to change floor.toml"
)
_OTHER = "their logs and `sotto-client doctor` say more"


def remedy(code: str) -> str:
    """Return what to do about a refusal, in words."""
    return _OF_ONE.get(code, _OF_FLOORS if code.startswith("floor_") else _OTHER)
