"""Synthetic speech: the 35 words of Speech Commands v0.02 as Debian's espeak-ng speaks them, as log-mel features.

No recordings are needed: espeak-ng speaks each word in accents of English and variants of its voice, at drawn speeds
and pitches. A clip is one second at 16 kHz with the word near its middle, under white noise. Its features are those of
the paper's authors for the recorded clips: 128 mel bands x 32 frames (hop 512), in dB below the clip's maximum, from
transformers' log-mel code. A variant stands for a speaker, and those of the test are not trained on.

Sources: P. Warden, "Speech Commands: A Dataset for Limited-Vocabulary Speech Recognition", 2018 (words, clips, speakers
apart); C. Jermaine et al., PVLDB 15(8), 2022 (features).
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import wave
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from math import gcd
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["BANDS", "FRAMES", "WORDS", "Utterance", "clip", "features", "load", "prepare", "utterances"]

FOLDER = Path(__file__).resolve().parents[2] / "build" / "speech"
WORDS = (
    *("backward", "bed", "bird", "cat", "dog", "down", "eight", "five", "follow"),
    *("forward", "four", "go", "happy", "house", "learn", "left", "marvin", "nine"),
    *("no", "off", "on", "one", "right", "seven", "sheila", "six", "stop"),
    *("three", "tree", "two", "up", "visual", "wow", "yes", "zero"),
)
ACCENTS = ("en-029", "en-gb", "en-gb-scotland", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-gb-x-rp", "en-us")
SPEAKERS: Mapping[str, Sequence[str]] = {
    "train": ("m1", "m2", "m4", "m5", "m7", "m8", "f1", "f2", "f4", "f5", "croak", "whisper"),
    "test": ("m3", "m6", "f3", "whisperf"),
}
TAKES = 3  # clips of each word, accent and speaker
SPEEDS = (110, 220)  # words a minute
PITCHES = (20, 80)  # of espeak-ng's 0 to 99
SHIFT = 0.1  # seconds by which a word is off the middle, at most
SIGNAL_TO_NOISE = (10.0, 40.0)  # dB

RATE = 16_000  # samples of a clip, which lasts one second
BANDS, FRAMES = 128, 32
HOP, WINDOW = 512, 2048
RANGE = 80.0  # dB below the maximum at which features are cut off

Samples = npt.NDArray[np.float32]


class Utterance(NamedTuple):
    """A word as it is spoken, and how the clip is made of it.

    voice   of espeak-ng: an accent, and after the plus sign the speaker
    shift   seconds from the clip's middle to the word's, where the clip has room
    noise   dB from the word's mean power to that of the noise
    seed    of the noise
    """

    word: str
    voice: str
    speed: int
    pitch: int
    shift: float
    noise: float
    seed: int


def utterances(seed: int = 0) -> dict[str, list[Utterance]]:
    """What is spoken in "train" and "test", in random order.

    >>> {part: len(each) for part, each in utterances().items()}
    {'train': 8820, 'test': 2940}
    """
    generator = np.random.default_rng(seed)
    found = {}
    for part, speakers in SPEAKERS.items():
        voices = [f"{accent}+{speaker}" for accent in ACCENTS for speaker in speakers]
        drawn = [_drawn(word, voice, generator) for voice in voices for word in WORDS for _ in range(TAKES)]
        found[part] = [drawn[row] for row in generator.permutation(len(drawn))]
    return found


def _drawn(word: str, voice: str, generator: np.random.Generator) -> Utterance:
    return Utterance(
        word,
        voice,
        speed=int(generator.integers(*SPEEDS, endpoint=True)),
        pitch=int(generator.integers(*PITCHES, endpoint=True)),
        shift=float(generator.uniform(-SHIFT, SHIFT)),
        noise=float(generator.uniform(*SIGNAL_TO_NOISE)),
        seed=int(generator.integers(2**32)),
    )


def speak(utterance: Utterance) -> Samples:
    """The word's samples at 16 kHz, from espeak-ng. Raises click.ClickException without it."""
    from scipy.signal import resample_poly

    word, voice, speed, pitch = utterance[:4]
    command = ["espeak-ng", "-z", "-v", voice, "-s", str(speed), "-p", str(pitch), "--stdout", word]
    try:
        spoken = subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        raise click.ClickException("speech: no espeak-ng speaks the words; run: apt-get install -y espeak-ng") from None
    with wave.open(io.BytesIO(spoken.stdout)) as file:
        rate = file.getframerate()
        # The header of a stream has no length.
        samples = np.frombuffer(file.readframes(RATE * 60), dtype="<i2").astype(np.float32) / 2**15
    common = gcd(rate, RATE)
    resampled: Samples = resample_poly(samples, RATE // common, rate // common).astype(np.float32)
    return resampled


def clip(spoken: Samples, utterance: Utterance) -> Samples:
    """One second with the word in it, or the word's first second, under noise."""
    spoken = spoken[:RATE]
    noise = np.random.default_rng(utterance.seed).standard_normal(RATE, dtype=np.float32)
    noise *= np.sqrt(np.mean(np.square(spoken)) / 10 ** (utterance.noise / 10))
    room = RATE - len(spoken)
    first = min(max(0, room // 2 + round(utterance.shift * RATE)), room)
    noise[first : first + len(spoken)] += spoken
    return noise


@cache
def _tables() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The window, and the mel bands' weights of its frequencies."""
    from transformers.audio_utils import mel_filter_bank, window_function

    bands = mel_filter_bank(WINDOW // 2 + 1, BANDS, 0.0, RATE / 2, RATE, norm="slaney", mel_scale="slaney")
    return window_function(WINDOW, "hann"), bands


def features(samples: Samples) -> Samples:
    """A clip's power in mel bands and frames, in dB below its maximum; shape (128, 32)."""
    from transformers.audio_utils import power_to_db, spectrogram

    window, bands = _tables()
    power = spectrogram(samples, window, WINDOW, HOP, power=2.0, pad_mode="constant", mel_filters=bands)
    found: Samples = power_to_db(power, float(power.max()), db_range=RANGE).astype(np.float32)
    return found


def _points(spoken: Sequence[Utterance]) -> tuple[Tensor, Tensor]:
    """Features, rounded to 16 bits as there are many, and the words' numbers."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        rows = pool.map(lambda each: features(clip(speak(each), each)).astype(np.float16).ravel(), spoken)
        x = torch.from_numpy(np.stack(list(rows)))
    return x, torch.tensor([WORDS.index(each.word) for each in spoken])


def prepare() -> Path:
    """The file of all features; makes it first if need be, which takes minutes.

    Raises click.ClickException without espeak-ng.
    """
    spoken = utterances()
    recipe = hashlib.sha256(repr((spoken, BANDS, HOP, WINDOW, RANGE)).encode()).hexdigest()
    path = FOLDER / f"{recipe[:16]}.pt"
    if not path.exists():
        click.echo(f"speech: espeak-ng speaks {sum(map(len, spoken.values())):,} clips for {path}", err=True)
        parts = {part: _points(each) for part, each in spoken.items()}
        FOLDER.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        torch.save(parts, unfinished)
        unfinished.rename(path)
    return path


def load() -> dict[str, tuple[Tensor, Tensor]]:
    """Features of 16 bits, a row for each clip, and classes of "train" and "test"; mapped from the file."""
    parts: dict[str, tuple[Tensor, Tensor]] = torch.load(prepare(), mmap=True)
    return parts
