import pytest

from models.listening.edit_distance import ReadingErrors
from simulation.listening.hearing import UtteranceFigures
from simulation.listening.pitch import PitchErrors
from simulation.listening.table import ListeningReport, markdown, voice_figures


def utterance(  # one figure each, so that a test can vary it
    *,
    mcd_db: float = 4.0,
    edits: int = 0,
    characters: int = 10,
    hertz_squares: float | None = None,
    stopped: bool | None = None,
    stoi: float | None = None,
    is_speaker: bool | None = None,
    second_edits: int | None = None,
) -> UtteranceFigures:
    pitch = None
    if hertz_squares is not None:
        pitch = PitchErrors(
            pairs=10, voiced_in_both=4, voiced_in_one=1, hertz_squares=hertz_squares
        )
    return UtteranceFigures(
        clip="a",
        heard="",
        seconds=1.0,
        mcd_db=mcd_db,
        pitch=pitch,
        stoi=stoi,
        pesq=None,
        reading=ReadingErrors(edits=edits, characters=characters),
        second_reading=(
            None if second_edits is None else ReadingErrors(edits=second_edits, characters=10)
        ),
        diagonality=None,
        has_stopped_in_time=stopped,
        is_speaker=is_speaker,
    )


def test_figures_of_utterances_become_those_of_a_voice() -> None:
    figures = voice_figures(
        "a voice",
        "voice",
        [
            utterance(mcd_db=4.0, edits=1, characters=10, hertz_squares=400.0, stopped=True),
            utterance(mcd_db=6.0, edits=8, characters=20, hertz_squares=0.0, stopped=False),
            utterance(mcd_db=8.0, stoi=0.5, is_speaker=True, second_edits=3),
            utterance(mcd_db=6.0, characters=0, is_speaker=False),
        ],
    )

    assert figures.clips == 4
    assert figures.mcd_db == pytest.approx(6.0)
    assert figures.character_error_rate == pytest.approx(9 / 40)
    # Of the one utterance that the second judge heard.
    assert figures.second_error_rate == pytest.approx(3 / 10)
    assert figures.f0_rmse_hz == pytest.approx((400 / 8) ** 0.5)
    assert figures.voicing_error == pytest.approx(2 / 20)
    assert figures.stop_accuracy == pytest.approx(1 / 2)
    assert figures.stoi == pytest.approx(0.5)
    assert figures.pesq is None
    assert figures.speaker_accuracy == pytest.approx(1 / 2)


def report(recogniser_error_rate: float = 0.0125) -> ListeningReport:
    return ListeningReport(
        corpus="espeak",
        held_out=64,
        recogniser_error_rate=recogniser_error_rate,
        vocoder="Griffin-Lim",
        voices=(voice_figures("stage 1", "voice", [utterance(edits=3, stopped=True)]),),
        notes=("PESQ was not measured: pesq is missing",),
    )


def test_a_table_says_what_it_is_of() -> None:
    lines = markdown(report()).splitlines()

    assert lines[0] == "# Listening to espeak"
    assert "0.013 on all 64" in lines[2]
    assert lines[6] == "| stage 1 | voice | 4.00 | – | – | – | – | – | 0.300 | – | – | 100% | – |"
    assert lines[4].count("|") == lines[5].count("|") == lines[6].count("|")
    assert "- PESQ was not measured: pesq is missing" in lines


@pytest.mark.parametrize(("rate", "warns"), [(0.2, False), (0.75, True)])
def test_a_recogniser_that_mishears_real_clips_is_no_judge(rate: float, warns: bool) -> None:
    assert ("the recogniser mishears 75% of the letters" in markdown(report(rate))) == warns


def test_a_voice_that_said_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="got nothing"):
        voice_figures("a voice", "voice", [])
