from models.plan.plan import Plan, TrainingSettings, VocabularySettings, upload_schema
from models.settings.model import GruLmSettings, schema_of
from privacy.clipping.settings import AdaptiveClipping
from privacy.noise.settings import NoNoise, PaperNoise, PrivacySettings

MODEL = GruLmSettings(vocabulary_size=7, hidden_size=2)


def plan(privacy: PrivacySettings) -> Plan:
    return Plan(
        run="0" * 32,
        model=MODEL,
        schema_sha256=schema_of(MODEL).sha256.hex(),
        vocabulary=VocabularySettings(name="test", size=7, sha256="0" * 64),
        training=TrainingSettings(learning_rate=0.1, batch_size=1, bptt_steps=1),
        privacy=privacy,
        cohort_size=1,
        seed=0,
    )


def test_a_client_sends_back_the_models_tensors() -> None:
    assert upload_schema(plan(NoNoise())) == schema_of(MODEL)
    assert upload_schema(plan(PaperNoise(randomisation_magnitude=0.1))) == schema_of(MODEL)


def test_scoring_the_clean_update_sends_one_norm_a_tensor_behind_them() -> None:
    model = schema_of(MODEL)

    upload = upload_schema(plan(PaperNoise(randomisation_magnitude=0.1, score="clean")))

    assert upload.tensors[:-1] == model.tensors
    assert upload.element_count == model.element_count + len(model.tensors)
    assert upload.tensors[-1].name == "clean_norms"


def test_adaptive_clipping_sends_whether_the_update_fitted_behind_it() -> None:
    model = schema_of(MODEL)
    privacy = NoNoise(clipping_norm=1.0, adaptive_clipping=AdaptiveClipping(count_noise_std=1.0))

    upload = upload_schema(plan(privacy))

    assert upload.tensors[:-1] == model.tensors
    assert upload.tensors[-1].name == "fitted"
    assert upload.element_count == model.element_count + 1
