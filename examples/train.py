"""A whole training script. Run it on one machine:

torchrun --nproc-per-node 4 --max-restarts 3 examples/train.py [--steps N] [--checkpoints FOLDER] [--live FILE]
"""

import argparse

import torch
from torch import nn

import lioncub


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoints", metavar="FOLDER", help="go on from the latest one in FOLDER, and save there")
    parser.add_argument("--live", metavar="FILE", help="show a dashboard, and write records of the job to FILE")
    options = parser.parse_args()

    with lioncub.distributed.init() as world:
        torch.manual_seed(0)  # the same weights on every worker
        model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1)).to(world.device)
        optimizer = lioncub.DistributedLion(model.named_parameters(), lr=1e-3, weight_decay=0.01)

        torch.manual_seed(1 + world.rank)  # other data on every worker
        live = lioncub.live.Monitor(optimizer, dashboard=bool(options.live), records=options.live)
        with live, lioncub.resume(options.checkpoints, model, optimizer, every=50) as run:
            for _ in run.steps(options.steps):
                x = torch.randn(64, 32, device=world.device)
                loss = (model(x).squeeze(1) - x[:, 0] * x[:, 1]).square().mean()
                optimizer.zero_grad()
                loss.backward()  # gradients stay on the worker: no DistributedDataParallel
                optimizer.step()
                live.step(loss=loss.item())
                run.extra["loss"] = loss.item()

        if world.rank == 0:
            stats = optimizer.stats
            print(f"loss {run.extra['loss']:.3f}, {stats.bits_per_parameter:.2f} bits sent per parameter and step")


if __name__ == "__main__":
    main()
