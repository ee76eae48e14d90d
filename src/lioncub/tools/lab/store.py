"""The store of torchrun's agents: ``python -m lioncub.tools.lab.store ADDRESS PORT``.

It runs on the switch and outlives every host. An agent's own store would go with the first agent that is done, while
others still wait at torchrun's last barrier.
"""

from __future__ import annotations

import signal
import sys

from torch.distributed import TCPStore  # type: ignore[attr-defined]


def main() -> None:
    held = [TCPStore(sys.argv[1], int(sys.argv[2]), is_master=True, wait_for_workers=False)]
    while held:  # it serves as long as it is held
        signal.pause()


if __name__ == "__main__":
    main()
