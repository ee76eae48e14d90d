"""Damaged and forged checkpoints: none loads silently, none executes anything, each error names the file.

``LIONCUB_FAULT_SEED`` replays a run; the seed is in the output of one that fails.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rich.console import Console

from lioncub import checkpoint
from lioncub.errors import CheckpointError, NoCheckpointError
from lioncub.tools.checkpoints import CheckpointConfig, run_verify
from tests.support.checkpointing import Job, same
from tests.support.cluster import Cluster
from tests.support.tiers import counts

SEED = int(os.environ.get("LIONCUB_FAULT_SEED") or random.SystemRandom().getrandbits(32))
WORKERS = [f"worker-{worker:05}.safetensors" for worker in range(3)]
TENSORS = ["weights.safetensors", *WORKERS]
FILES = ["manifest.json", *TENSORS]
Named = list[str]
"""The files of which one must be named."""


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


# ---- what happens to files ------------------------------------------------------------------------------------------


def flip(folder: Path, draw: random.Random) -> Named:
    path = folder / draw.choice(FILES)
    data = bytearray(path.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    return [path.name]


def overwrite(folder: Path, draw: random.Random) -> Named:
    path = folder / draw.choice(FILES)
    data = bytearray(path.read_bytes())
    start = draw.randrange(len(data))
    old = bytes(data[start : start + draw.randrange(1, 512)])
    new = bytes(len(old)) if draw.random() < 0.5 and any(old) else bytes(byte ^ draw.randrange(1, 256) for byte in old)
    data[start : start + len(old)] = new
    path.write_bytes(data)
    return [path.name]


def truncate(folder: Path, draw: random.Random) -> Named:
    path = folder / draw.choice(FILES)
    os.truncate(path, draw.randrange(path.stat().st_size))
    return [path.name]


def append(folder: Path, draw: random.Random) -> Named:
    path = folder / draw.choice(FILES)
    path.write_bytes(path.read_bytes() + draw.choice([b"\0", b"\n", b" ", draw.randbytes(100)]))
    return [path.name]


def delete(folder: Path, draw: random.Random) -> Named:
    path = folder / draw.choice(FILES)
    path.unlink()
    return [path.name]


def swap(folder: Path, draw: random.Random) -> Named:
    a, b = (folder / name for name in draw.sample(WORKERS, 2))
    first = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(first)
    return [a.name, b.name]


def link(folder: Path, draw: random.Random) -> Named:
    path = folder / draw.choice(FILES)
    outside = path.rename(folder.parent.parent / "outside")
    path.symlink_to(outside)
    return [path.name]


def no_file(folder: Path, draw: random.Random) -> Named:
    path = folder / draw.choice(FILES)
    path.unlink()
    draw.choice([Path.mkdir, os.mkfifo])(path)  # type: ignore[operator]
    return [path.name]


def bomb(folder: Path, draw: random.Random) -> Named:
    path = folder / draw.choice(FILES)
    payload = Bomb(folder.parent.parent / "exploded")
    if draw.random() < 0.5:
        path.write_bytes(pickle.dumps(payload))
    else:
        torch.save(payload, path)
    if path.name != "manifest.json" and draw.random() < 0.5:
        vouch(folder, path.name)
    return [path.name]


# ---- what forgers write: hashes match, contents lie -----------------------------------------------------------------


def seal(folder: Path, content: dict[str, Any], name: str = "manifest.json") -> None:
    """Write a manifest whose own checksum is right."""
    text = json.dumps(content)
    sealed = {**content, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    (folder / name).write_text(json.dumps(sealed, indent=1) + "\n")


def content_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    del content["sha256"]
    return content


def vouch(folder: Path, name: str) -> None:
    """Make the manifest say that a file is as it should be."""
    content, data = content_of(folder), (folder / name).read_bytes()
    content["files"][name] = {"num_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    seal(folder, content)


PATHS = (
    "../x",
    "/etc/passwd",
    "../worker-00000.safetensors",
    "./weights.safetensors",
    "a/b",
    "",
    "..",
    "C:\\x",
    "worker-00000.safetensors\0",
    "worker-00009.safetensors",
)
STRANGE: list[Any] = [-1, 1.5, None, "x", [], {}, True, 10**30, [[]], {"a": 1}]
WRONG: list[Any] = [-1, "x", None, [2, 2], {}]
TOO_LARGE: list[Any] = [2**62, 2**70]
MANIFESTS: list[Callable[[dict[str, Any]], Any]] = [
    *(lambda c, path=path: c["files"].update({path: c["files"].pop(WORKERS[1])}) for path in PATHS),
    *(lambda c, path=path: c["files"].update({path: c["files"][WORKERS[1]]}) for path in PATHS),
    *(lambda c, key=key: c.pop(key) for key in ("step", "files", "groups", "workers", "extras", "seed", "num_workers")),
    *(
        lambda c, key=key, value=value: c.update({key: value})
        for key in (
            "format_version",
            "step",
            "optimizer_step",
            "num_workers",
            "workers",
            "plan",
            "seed",
            "files",
            "groups",
        )
        for value in STRANGE
    ),
    lambda c: c.update(unknown=1),
    lambda c: c.update(format_version=2),
    lambda c: c.update(step=c["step"] + 1),
    lambda c: c.update(workers=[0, 1]),
    lambda c: c.update(workers=[0, 2, 1]),
    lambda c: c.update(workers=[0, 1, 3]),
    lambda c: c.update(workers=[0, 0, 1, 2]),
    lambda c: c.update(workers=[1, 2]),
    lambda c: c["extras"].pop(),
    lambda c: c.update(notes={"0.weight": {"exp_avg": [1]}}),
    lambda c: c.update(notes=[]),
    *(lambda c, size=size: c["files"][WORKERS[0]].update(num_bytes=size) for size in (-1, 2**62, 10**40, "1", None)),
    *(lambda c, text=text: c["files"][WORKERS[0]].update(sha256=text) for text in ("", "0" * 64, None, "g" * 64, 5)),
    lambda c: c["files"][WORKERS[0]].update(mode="x"),
    lambda c: c["groups"][0].update(parameters=["../x"]),
    lambda c: c["groups"][0].update(parameters=c["groups"][0]["parameters"][::-1]),
    lambda c: c["groups"].append(c["groups"][0]),
    *(
        lambda c, key=key, value=value: c["groups"][0]["settings"].update({key: value})
        for key in ("lr", "betas", "memory", "since", "weight_decay", "step", "maximize")
        for value in WRONG
    ),
    *(lambda c, value=value: c["groups"][0]["settings"].update(step=value) for value in TOO_LARGE),
]


def forge_manifest(folder: Path, draw: random.Random) -> Named:
    content = content_of(folder)
    draw.choice(MANIFESTS)(content)
    seal(folder, content)
    return ["manifest.json", WORKERS[0]]  # a wrong hash or size of a file is blamed on the file


def forge_text(folder: Path, draw: random.Random) -> Named:
    """JSON that parsers differ about."""
    path = folder / "manifest.json"
    text = path.read_text()
    path.write_text(
        draw.choice(
            [
                text.replace('"step": ', '"step": 5, "step": ', 1),
                text.replace('"lr": ', '"lr": NaN, "x": ', 1),
                text.replace('"lr": ', '"lr": Infinity, "x": ', 1),
                text.replace('"notes": {', '"notes": {"x": ' + "[" * 100_000 + "]" * 100_000 + ",", 1),
                "[" * 200_000,
                text.replace('"step": 5', '"step": ' + "9" * 10_000, 1),
                text.replace("\n", "\r\n"),
                text.replace('"step"', '"\\u0073tep"', 1),
                "",
                "null",
                "[]",
                '"x"',
                text + text,
            ]
        )
    )
    return [path.name]


def a_tensor(header: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    name = draw.choice([name for name in header if name.startswith(("momentum", "buffer", "0", "4"))])
    return {"name": name, "claim": header[name]}


HEADERS: list[Callable[[dict[str, Any], str, dict[str, Any]], Any]] = [
    lambda h, name, claim: claim.update(data_offsets=[0, 2**40]),
    lambda h, name, claim: claim.update(data_offsets=[-8, 8]),
    lambda h, name, claim: claim.update(data_offsets=[claim["data_offsets"][0] + 1, claim["data_offsets"][1] + 1]),
    lambda h, name, claim: claim.update(data_offsets=claim["data_offsets"][::-1]),
    lambda h, name, claim: claim.update(data_offsets=[0]),
    lambda h, name, claim: claim.update(data_offsets="xy"),
    lambda h, name, claim: claim.update(data_offsets=[0.0, 4.0]),
    lambda h, name, claim: claim.update(shape=[*claim["shape"], 2]),
    lambda h, name, claim: claim.update(shape=[-1, -1]),
    lambda h, name, claim: claim.update(shape=[2**62, 2**62]),
    lambda h, name, claim: claim.update(shape=[1, *claim["shape"]]),
    lambda h, name, claim: claim.update(shape=None),
    lambda h, name, claim: claim.update(shape=[True, *claim["shape"]]),
    lambda h, name, claim: claim.update(dtype={"F32": "I32", "I64": "F64"}[claim["dtype"]]),
    lambda h, name, claim: claim.update(dtype="F128"),
    lambda h, name, claim: claim.update(dtype=["F32"]),
    lambda h, name, claim: claim.update(extra=1),
    lambda h, name, claim: claim.pop("dtype"),
    lambda h, name, claim: h.pop(name),
    lambda h, name, claim: h.update({name + "x": h.pop(name)}),
    lambda h, name, claim: h.update({"../" + name: h.pop(name)}),
    lambda h, name, claim: h.update({name: []}),
    lambda h, name, claim: h.update(more={"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}),
    lambda h, name, claim: h.pop("__metadata__"),
    lambda h, name, claim: h["__metadata__"].update(step="6"),
    lambda h, name, claim: h["__metadata__"].update(file="worker-00007.safetensors"),
    lambda h, name, claim: h["__metadata__"].update(save_id="0"),
]


def forge_header(folder: Path, draw: random.Random) -> Named:
    """Tensors are not where, or what, the header says; the manifest vouches for all of it."""
    name = draw.choice(TENSORS)
    data = (folder / name).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    draw.choice(HEADERS)(header, *a_tensor(header, draw).values())
    text = json.dumps(header).encode()
    (folder / name).write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    vouch(folder, name)
    return [name]


def forge_file(folder: Path, draw: random.Random) -> Named:
    """Not a safetensors file at all, or one with a header that cannot be; the manifest vouches for it."""
    name = draw.choice(TENSORS)
    path, data = folder / name, (folder / name).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length]
    texts = [b"[" * 50_000, b"{}", b"null", b"\xff\xfe{", header.replace(b'"dtype"', b'"dtype": "F32", "dtype"', 1)]
    text = draw.choice(texts)
    path.write_bytes(
        draw.choice(
            [
                b"",
                b"abc",
                draw.randbytes(1000),
                (2**63).to_bytes(8, "little") + data[8:],
                (len(data) + 1).to_bytes(8, "little") + data[8:],
                len(text).to_bytes(8, "little") + text + data[8 + length :],
            ]
        )
    )
    vouch(folder, name)
    return [name]


def forge_swap(folder: Path, draw: random.Random) -> Named:
    """Two workers' files change places, and the manifest agrees."""
    named = swap(folder, draw)
    for name in named:
        vouch(folder, name)
    return named


DAMAGES = (flip, flip, overwrite, truncate, append, delete, swap, link, no_file, bomb)
FORGERIES = (forge_manifest, forge_manifest, forge_text, forge_header, forge_header, forge_file, forge_swap)


# ---- the cases ------------------------------------------------------------------------------------------------------


def _save(rank: int, group: dist.ProcessGroup, folder: Path) -> None:
    job = Job(rank, group)
    job.train(5)
    job.save(folder, 5)


@counts("cases", fast=100, full=1000)
def test_no_damage_and_no_forgery_loads(cluster: Cluster, tmp_path: Path, cases: int) -> None:
    print(f"LIONCUB_FAULT_SEED={SEED}")
    cluster.run(3, _save, tmp_path / "sound")
    job, draw = Job(), random.Random(SEED)
    before = job.everything()
    for case in range(cases):
        damage = draw.choice(DAMAGES + FORGERIES)
        run = tmp_path / str(case) / "run"
        shutil.copytree(tmp_path / "sound", run)
        named = damage(run / "step-0000000005", draw)
        where = f"case {case}, {damage.__name__}, LIONCUB_FAULT_SEED={SEED}"
        with pytest.raises(CheckpointError) as told:
            pytest.fail(f"{where}: loaded {checkpoint.load(run, job.model, job.optimizer)}")
        assert not isinstance(told.value, NoCheckpointError), where
        assert any(name in str(told.value) for name in named), f"{where}: {told.value} names none of {named}"
        assert same(job.everything(), before), f"{where}: something changed"
        assert not (tmp_path / str(case) / "exploded").exists(), f"{where}: the payload ran"
        if damage in DAMAGES and "manifest.json" not in named:
            assert not run_verify(CheckpointConfig(folder=run), Console(quiet=True)), f"{where}: not noticed by verify"
        shutil.rmtree(tmp_path / str(case))
    job.load(tmp_path / "sound")
