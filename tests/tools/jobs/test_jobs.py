"""Training jobs: the same for everyone, and they learn."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from lioncub import Lion
from lioncub.errors import ConfigError
from lioncub.tools.data.errors import DataMissingError
from lioncub.tools.data.images import Images
from lioncub.tools.jobs import JOBS, Job, load_job
from lioncub.tools.jobs.images import MARGIN, ImageJob, augment, normalise
from lioncub.tools.jobs.text import TextJob
from lioncub.tools.jobs.vit import ViT
from tests.support.text_jobs import text_job

MILLION = 1_000_000


def image_job(name: str) -> ImageJob:
    """Images of noise, as bright as their class is high."""
    random = torch.Generator().manual_seed(0)

    def part(count: int) -> tuple[Tensor, Tensor]:
        y = torch.arange(count) % 10
        return (torch.randint(30, (count, 3, 32, 32), generator=random) + 22 * y.view(-1, 1, 1, 1)).byte(), y

    (train_x, train_y), (test_x, test_y) = part(100), part(40)
    images = Images(name="made", train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y)
    recipe = JOBS[name]
    return ImageJob(
        name=name, data="made", build=recipe.build, images=images, lr=recipe.lr, adamw_lr=recipe.adamw_lr,
        weight_decay=0.1,
    )  # fmt: skip


SMALL: dict[str, Callable[[], Job]] = {
    "gpt-1m": text_job,
    "vit-1m": lambda: image_job("vit-1m"),
    "resnet-1m": lambda: image_job("resnet-1m"),
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---- every job -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", JOBS)
def test_a_jobs_name_tells_its_size(name: str) -> None:
    with torch.device("meta"):
        model = JOBS[name].build()
    (size, unit), *others = re.findall(r"-(\d+)([km])\b", name)
    assert not others
    promised = int(size) * {"k": 1000, "m": MILLION}[unit]
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(promised, rel=0.1)
    assert set(model.state_dict()) == {key for key, _ in model.named_parameters()}  # nothing that could drift apart


@pytest.mark.parametrize("name", SMALL)
def test_weights_follow_from_the_seed_alone(name: str) -> None:
    job = SMALL[name]()
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, same, other = job.model(1), job.model(1), job.model(2)
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("name", SMALL)
def test_batches_follow_from_the_generator_alone(name: str) -> None:
    job = SMALL[name]()
    one, same, other = job.batch(seeded(1), 16), job.batch(seeded(1), 16), job.batch(seeded(2), 16)
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not torch.equal(one[0], other[0])


@pytest.mark.parametrize("name", SMALL)
def test_shares_of_the_validation_make_up_the_whole(name: str) -> None:
    job = SMALL[name]()
    examples, batch = (256, 16) if name == "gpt-1m" else (16, 16)
    inputs, targets = job.validation(examples, batch=batch)
    model = job.model(0)
    with torch.no_grad():
        whole = job.loss(model, inputs, targets)
        shares = [job.loss(model, inputs[rank::4], targets[rank::4]) for rank in range(4)]
    assert len(inputs) == 16
    assert torch.stack(shares).mean().item() == pytest.approx(whole.item(), rel=1e-4)


@pytest.mark.parametrize("name", SMALL)
def test_a_job_learns_and_every_parameter_takes_part(name: str) -> None:
    job = SMALL[name]()
    model, batches = job.model(0), seeded(0)
    optimizer = Lion(model.named_parameters(), lr=job.lr, weight_decay=job.weight_decay, memory="constant")
    held_out = job.validation(128 if name == "gpt-1m" else 40)
    with torch.no_grad():
        before = job.loss(model, *held_out).item()
    for _ in range(25):
        loss = job.loss(model, *job.batch(batches, 128 if name == "gpt-1m" else 16))
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
        optimizer.step()
    with torch.no_grad():
        after = job.loss(model, *held_out).item()
    assert after < 0.8 * before


def test_jobs_have_names_units_and_settings(tmp_path: Path) -> None:
    job = load_job("gpt-1m", text="stdlib", cache=tmp_path)
    assert (job.name, job.data, job.unit, job.examples_unit) == ("gpt-1m", "stdlib", "nats per byte", "tokens")
    assert 0 < job.lr < job.adamw_lr
    assert job.batch(seeded(0), 256)[0].shape == (2, 128)
    images = image_job("resnet-1m")
    assert (images.unit, images.examples_unit) == ("nats per image", "images")


def test_a_job_without_its_data_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match="`lioncub data cifar10`"):
        load_job("vit-1m", cache=tmp_path)
    with pytest.raises(DataMissingError, match="`lioncub data enwik8`"):
        load_job("gpt-1m", text="enwik8", cache=tmp_path)


def test_an_unknown_job_is_refused_with_a_choice() -> None:
    with pytest.raises(ConfigError, match="no job 'gpt-2m': choose from gpt-230k, "):
        load_job("gpt-2m")


@pytest.mark.parametrize("settings", [{"lr": 0.0}, {"adamw_lr": -1.0}, {"weight_decay": float("nan")}])
def test_settings_that_cannot_work_are_refused(settings: dict[str, float]) -> None:
    values: dict[str, Any] = {"lr": 1.0, "adamw_lr": 1.0, "weight_decay": 0.0} | settings
    job = text_job()
    with pytest.raises(ConfigError, match=next(iter(settings))):
        TextJob(name="x", data="made", build=job.build, text=job.text, **values)


# ---- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "shape"), [(1, (1, 1)), (16, (1, 16)), (128, (1, 128)), (512, (4, 128))])
def test_tokens_are_sequences_of_at_most_128_bytes(tokens: int, shape: tuple[int, int]) -> None:
    inputs, targets = text_job().batch(seeded(0), tokens)
    assert inputs.shape == targets.shape == shape
    assert inputs.dtype == targets.dtype == torch.int64
    assert ((targets - inputs) % 251 == 1).all()  # the next byte


@pytest.mark.parametrize("tokens", [0, -128, 129, 200])
def test_tokens_that_make_no_whole_sequences_are_refused(tokens: int) -> None:
    job = text_job()
    for refuse in (job.check, job.validation, lambda n: job.batch(seeded(0), n)):
        with pytest.raises(ConfigError, match=f"gpt-1m needs .* got {tokens}"):
            refuse(tokens)


def test_validation_text_reaches_from_the_first_byte_to_the_last_in_sequences_like_the_batches() -> None:
    job = text_job()
    inputs, targets = job.validation(512, batch=16)
    assert inputs.shape == (32, 16)
    assert torch.equal(inputs[0], job.text.validation[:16].long())
    assert torch.equal(targets[-1], job.text.validation[-16:].long())
    assert torch.equal(inputs, job.validation(512, batch=16)[0])
    assert job.validation(512)[0].shape == (4, 128)
    with pytest.raises(ConfigError, match="multiple of 128 tokens to validate, got 200"):
        job.validation(200, batch=1024)


# ---- images ----------------------------------------------------------------------------------------------------------


def test_augmented_images_are_shifted_and_mirrored_ones() -> None:
    images = torch.randint(1, 256, (40, 3, 32, 32), dtype=torch.uint8, generator=seeded(0))
    seen = set()
    for image, changed in zip(images, augment(images, seeded(1)), strict=True):
        padded = functional.pad(image, (MARGIN,) * 4)
        found = [
            (down, right, mirrored)
            for down in range(9)
            for right in range(9)
            for mirrored in (False, True)
            if torch.equal(changed, cut(padded, down, right, mirrored))
        ]
        assert len(found) == 1
        seen |= {*found}
    assert {mirrored for *_, mirrored in seen} == {False, True}
    assert len(seen) > 20


def cut(padded: Tensor, down: int, right: int, mirrored: bool) -> Tensor:
    part = padded[:, down : down + 32, right : right + 32]
    return part.flip(-1) if mirrored else part


def test_validation_images_are_evenly_spaced_and_left_as_they_are() -> None:
    job = image_job("vit-1m")
    inputs, targets = job.validation(4)
    assert torch.equal(inputs, normalise(job.images.test_x[[0, 13, 26, 39]]))
    assert torch.equal(targets, job.images.test_y[[0, 13, 26, 39]])
    for images in (0, 41):
        with pytest.raises(ConfigError, match=f"has 40 images to validate, got {images}"):
            job.validation(images)
    with pytest.raises(ConfigError, match="at least 1 of images per step, got 0"):
        job.batch(seeded(0), 0)


def test_a_vision_transformer_sees_where_things_are() -> None:
    torch.manual_seed(0)
    model = ViT(width=32, layers=1, heads=2)
    image = torch.zeros(1, 3, 32, 32)
    image[:, :, :4, :4] = 1
    with torch.no_grad():
        assert not torch.allclose(model(image), model(image.flip(-1)), atol=1e-6)
        first, both = model(image), model(torch.cat((image, -image)))
    assert torch.allclose(first[0], both[0], atol=1e-6)  # an image does not depend on its batch
