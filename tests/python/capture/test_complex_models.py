"""Models with complex numbers and Fourier transforms: values, gradients and training steps are torch's."""

from __future__ import annotations

import copy

import joinsum
import pytest
import torch
from torch import Tensor, fft, nn


class FourierOperator(nn.Module):
    """A layer of a Fourier neural operator: low frequencies times complex weights."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = (nn.Parameter(0.3 * torch.randn(4, 4, 3, 3, dtype=torch.complex64)) for _ in range(2))
        self.skip = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        frequencies = fft.rfft2(x)
        out = torch.zeros_like(frequencies)
        out[:, :, :3, :3] = torch.einsum("bixy,ioxy->boxy", frequencies[:, :, :3, :3], self.low)
        out[:, :, -3:, :3] = torch.einsum("bixy,ioxy->boxy", frequencies[:, :, -3:, :3], self.high)
        return nn.functional.gelu(fft.irfft2(out, s=x.shape[-2:]) + self.skip(x))


class RotaryScores(nn.Module):
    """Rotary positions as complex factors, as in LLaMA's first code."""

    factors: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(16, 16), nn.Linear(16, 16)
        angles = torch.outer(torch.arange(6.0), 1 / 10000 ** (torch.arange(0, 8, 2) / 8))
        self.register_buffer("factors", torch.polar(torch.ones_like(angles), angles))

    def rotated(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:2], 2, 4, 2))
        return torch.view_as_real(pairs * self.factors[None, :, None]).flatten(3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bqhd,bkhd->bhqk", self.rotated(self.query(x)), self.rotated(self.key(x)))


class FourierMixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(fft.fft(fft.fft(x, dim=-1), dim=-2).real)
        return out


class StateSpace(nn.Module):
    """A diagonal state space layer (S4D): a long convolution by Fourier transforms."""

    def __init__(self) -> None:
        super().__init__()
        self.decay, self.frequency = nn.Parameter(torch.randn(8, 4)), nn.Parameter(torch.randn(8, 4))
        self.readout = nn.Parameter(torch.randn(8, 4, 2))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[-1]
        rates = (-self.decay.exp() + 1j * self.frequency).unsqueeze(-1)
        powers = torch.exp(rates * torch.arange(length))
        kernel = 2 * torch.einsum("hn,hnl->hl", torch.view_as_complex(self.readout), powers).real
        return fft.irfft(fft.rfft(x, n=2 * length) * fft.rfft(kernel, n=2 * length), n=2 * length)[..., :length]


class Spectrum(nn.Module):
    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(9, 4)
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, x: Tensor) -> Tensor:
        frames = torch.stft(x, 16, 4, window=self.window, return_complex=True).transpose(1, 2)
        out: Tensor = (
            self.layer(frames.abs()) + self.layer(frames.angle().sin()) + self.layer((frames * frames.conj()).real)
        )
        return out


MODELS: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "Fourier operator": (FourierOperator, (6, 4, 16, 16)),
    "rotary scores": (RotaryScores, (5, 6, 16)),
    "Fourier mixer": (FourierMixer, (5, 6, 8)),
    "state space": (StateSpace, (6, 8, 12)),
    "spectrum": (Spectrum, (3, 64)),
}


def made(name: str, sites: int) -> tuple[nn.Module, Tensor]:
    torch._dynamo.reset()
    joinsum.init(sites=sites, plan_cache=False)
    torch.manual_seed(0)
    kind, shape = MODELS[name]
    return kind(), torch.randn(shape)


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5 * max(1.0, float(wanted.abs().max())))


@pytest.mark.parametrize("sites", [1, 2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_values_and_gradients_are_torchs(name: str, sites: int) -> None:
    model, base = made(name, sites)

    def outcome(call: nn.Module) -> list[Tensor]:
        x = base.clone().requires_grad_()
        out = call(x)
        loss = (out * torch.linspace(1, 2, out.numel()).reshape(out.shape)).sum()
        return [out.detach(), *torch.autograd.grad(loss, [x, *model.parameters()])]

    for found, wanted in zip(outcome(torch.compile(model, backend="joinsum")), outcome(model), strict=True):  # type: ignore[arg-type]
        close(found, wanted)


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_steps_are_torchs(name: str, sites: int) -> None:
    model, x = made(name, sites)
    plain = copy.deepcopy(model)
    target = torch.zeros_like(plain(x))
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.Adam(model.parameters(), 1e-3))
    optimizer = torch.optim.Adam(plain.parameters(), 1e-3)
    for _ in range(3):
        loss = nn.functional.mse_loss(plain(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        close(step(x, target), loss.detach())
