"""The refusals that leave a device: a stable code, and one fixed line for each.

The owner's own log has the rest. A reason made on the device could hold a norm, a path or a name,
and nobody at the other end needs one: so no function here takes words.
"""

OTHER = "plan_unusable"
"""The code for whatever nobody thought of."""

LINES = {
    "accountant_unusable": "the device cannot account for example_privacy; it lacks an extra",
    "bad_payload": "the model does not fit the plan",
    "bytes_a_day": "the round moves more bytes than the device's owner allows today",
    "certificate_unusable": "the coordinator's certificates cannot be used now",
    "data_unusable": "the device has no data that can be used",
    "device_missing": "the device lacks the processor that its owner asked for",
    "disk": "the device's disk is full or cannot be used",
    "example_budget_spent": "the device's budget of example privacy is spent",
    "example_ledger_unusable": "the device cannot read what its example privacy has cost",
    "floor_authority": "the device's owner does not accept this authority",
    "floor_clipping_norm": "the clipping norm is above the device's floor",
    "floor_cohort": "the cohort or its quorum is below the device's floor",
    "floor_data_folder": "the device's data lie outside the folders of its floor",
    "floor_delta": "delta is above the device's floor",
    "floor_epsilon": "the epsilon budget is above the device's floor",
    "floor_example_privacy": "the device trains only with example_privacy",
    "floor_helper": "the device's owner does not accept this helper, or the plan has none",
    "floor_kind": "the device takes no plan of this kind",
    "floor_method": "the device takes no part in this personalisation method",
    "floor_mode": "the device does not accept this noise mode for what would leave it",
    "floor_model_family": "the device does not train models of this family",
    "floor_noise_multiplier": "the noise multiplier is below the device's floor",
    "floor_plugin": "the device's floor does not name a plugin that the plan needs",
    "floor_sums": "the device sends nothing but updates under masks",
    "floor_unusable": "the device's floor cannot be read",
    "helper_certificate": "the helper's certificate cannot be used now",
    "identity_unusable": "the device's keys or folder cannot be used",
    "model_unusable": "the model is not one that any training ends in",
    "out_of_memory": "the device has too little memory",
    "personal_state_unusable": "the device's personal model cannot be used",
    "plan_not_signed": "the plan is not signed by the federation's coordinator",
    "plan_unreadable": "the device cannot read the plan",
    OTHER: "the device cannot run the plan",
    "plugin_unusable": "the device cannot use a plugin that the plan needs",
    "schema_mismatch": "the device builds this model with other tensors",
    "settings_unusable": "the device's settings cannot be used",
    "training_died": "the device's training process ended before it answered",
    "update_not_finite": "training did not end in an update that can be used",
    "vocabulary_mismatch": "the device's word list is not the plan's",
    "wrong_size": "a sealed part is not of the size that the plan implies",
    "zstd_missing": "the device lacks the extra zstd",
    # A coordinator's own refusal, handed back with the lease.
    "chunk_size": "the device's update was refused",
    "example_count": "the device's update was refused",
    "malformed_update": "the device's update was refused",
}


def told_code(code: str) -> str:
    """Return the code that leaves the device for one of its own."""
    return code if code in LINES else OTHER
