"""A whole training script. Run it on one machine:

torchrun --nproc-per-node 4 examples/train.py [--live FILE]
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn

import lioncub


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--live", metavar="FILE", help="show a dashboard, and write records of the job to FILE")
    live = parser.parse_args().live

    dist.init_process_group("gloo")
    torch.manual_seed(0)  # the same weights on every worker
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = lioncub.DistributedLion(model.named_parameters(), lr=1e-3, weight_decay=0.01)

    data = torch.Generator().manual_seed(dist.get_rank())  # other data on every worker
    with lioncub.live.Monitor(optimizer, dashboard=bool(live), records=live) as monitor:
        for _ in range(200):
            x = torch.randn(64, 32, generator=data)
            loss = (model(x).squeeze(1) - x[:, 0] * x[:, 1]).square().mean()
            optimizer.zero_grad()
            loss.backward()  # gradients stay on the worker: no DistributedDataParallel
            optimizer.step()
            monitor.step(loss=loss.item())

    if dist.get_rank() == 0:
        stats = optimizer.stats
        print(f"loss {loss.item():.3f}, {stats.bits_per_parameter:.2f} bits sent per parameter and step")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
