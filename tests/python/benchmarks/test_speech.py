"""The synthetic speech of the subnets' benchmark: what is drawn, what clips and features look like."""

from __future__ import annotations

import shutil
from pathlib import Path

import click
import numpy as np
import pytest
from subnets import speech
from subnets.speech import BANDS, FRAMES, RATE, Utterance

WORD = Utterance("yes", "en-us+f3", speed=150, pitch=50, shift=0.0, noise=20.0, seed=7)


def tone(hertz: float, seconds: float) -> speech.Samples:
    return np.sin(2 * np.pi * hertz * np.arange(int(seconds * RATE)) / RATE).astype(np.float32)


def test_a_seed_draws_the_same_utterances_again():
    assert speech.utterances(3) == speech.utterances(3)
    assert speech.utterances(3) != speech.utterances(4)


def test_both_parts_have_every_word_as_often_and_no_speaker_in_common():
    drawn = speech.utterances()
    for part in drawn.values():
        counts = [sum(each.word == word for each in part) for word in speech.WORDS]
        assert len(counts) == 35
        assert len(set(counts)) == 1
    train, test = ({each.voice.partition("+")[2] for each in part} for part in drawn.values())
    assert train
    assert test
    assert not train & test


def test_the_noise_of_a_clip_is_as_weak_as_drawn():
    word = tone(1000, 0.5)
    clip = speech.clip(word, WORD)
    noise = clip[: RATE // 4]  # the word is in the middle
    ratio = 10 * np.log10(np.mean(word**2) / np.mean(noise**2))
    assert ratio == pytest.approx(20.0, abs=0.5)
    assert np.array_equal(clip, speech.clip(word, WORD))


@pytest.mark.parametrize(("shift", "first"), [(0.0, 0.4), (0.1, 0.5), (-0.1, 0.3), (2.0, 0.8), (-2.0, 0.0)])
def test_a_word_is_shifted_from_the_middle_where_there_is_room(shift: float, first: float):
    clip = speech.clip(tone(1000, 0.2), WORD._replace(shift=shift, noise=60.0))
    assert clip.shape == (RATE,)
    assert np.flatnonzero(abs(clip) > 0.1)[0] == pytest.approx(first * RATE, abs=8)


def test_a_long_word_is_cropped():
    assert speech.clip(tone(1000, 1.5), WORD).shape == (RATE,)


def test_features_of_a_tone_are_loudest_in_its_band():
    found = speech.features(tone(1000, 1.0))
    assert found.shape == (BANDS, FRAMES)
    assert found.dtype == np.float32
    assert found.max() == 0
    assert found.min() == -speech.RANGE
    # 1,000 Hz are 15 of the 45.2 mels up to 8,000 Hz, on the scale of Slaney.
    assert found[:, FRAMES // 2].argmax() == pytest.approx(BANDS * 15 / 45.2, abs=1)


def test_features_do_not_depend_on_loudness():
    clip = speech.clip(tone(1000, 0.5), WORD)
    np.testing.assert_allclose(speech.features(clip / 8), speech.features(clip), atol=1e-3)


def test_without_espeak_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(click.ClickException, match="apt-get install -y espeak-ng"):
        speech.speak(WORD)


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed")
def test_espeak_speaks_a_word_alike_each_time_and_each_voice_in_its_own():
    """Its noise is not the same each time."""
    spoken = speech.speak(WORD)
    assert 0.1 * RATE < len(spoken) < RATE
    assert 0.05 < abs(spoken).max() <= 1.1  # resampling may overshoot
    again, other = speech.speak(WORD), speech.speak(WORD._replace(voice="en-gb-scotland+m3"))
    assert len(again) == len(spoken)
    assert abs(again - spoken).max() < 0.05
    length = min(len(other), len(spoken))
    assert abs(other[:length] - spoken[:length]).max() > 0.2


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed")
def test_features_are_kept_for_the_next_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    drawn = speech.utterances()
    monkeypatch.setattr(speech, "FOLDER", tmp_path)
    monkeypatch.setattr(speech, "utterances", lambda: {part: each[:3] for part, each in drawn.items()})
    x, y = speech.load()["train"]
    assert x.shape == (3, BANDS * FRAMES)
    assert [speech.WORDS[word] for word in y] == [each.word for each in drawn["train"][:3]]
    monkeypatch.setattr(speech, "speak", None)
    assert speech.load()["train"][0].equal(x)
    assert len(list(tmp_path.iterdir())) == 1
