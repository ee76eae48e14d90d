"""The environment variables that a launcher such as torchrun sets for a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lioncub.errors import ConfigError
from lioncub.transport.interfaces import (
    LOOPBACK,
    address_of,
    interface_of,
    interface_outwards,
    interface_towards,
    is_loopback,
    is_only_here,
)


@dataclass(frozen=True)
class Launch:
    """A worker's rank, the size of its job, and the address of the store, from the environment."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    """0 where the launcher does not set it."""
    host: str
    """The store's host."""
    port: int
    agents_store: bool
    """Whether torchrun's agent hosts the store; otherwise worker 0 hosts it."""
    job: str
    """torchrun's run id; empty under other launchers."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Launch | None:
        """From the environment; None where no launcher has set it."""
        names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        missing = [name for name in names if not environment.get(name)]
        if len(missing) == len(names):
            return None
        if missing:
            raise ConfigError(
                f"{', '.join(missing)} not set in the environment, as torchrun does: start it by torchrun"
            )
        numbers = {name: _number(environment, name) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT")}
        if not 0 <= numbers["RANK"] < numbers["WORLD_SIZE"]:
            raise ConfigError(f"RANK={numbers['RANK']} is not between 0 and WORLD_SIZE={numbers['WORLD_SIZE']}")
        if not 0 < numbers["MASTER_PORT"] < 1 << 16:
            raise ConfigError(f"MASTER_PORT={numbers['MASTER_PORT']} in the environment is not a port: 1 to 65535")
        return cls(
            rank=numbers["RANK"],
            size=numbers["WORLD_SIZE"],
            local_rank=_number(environment, "LOCAL_RANK"),
            local_size=_number(environment, "LOCAL_WORLD_SIZE"),
            host=environment["MASTER_ADDR"],
            port=numbers["MASTER_PORT"],
            agents_store=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            job=environment.get("TORCHELASTIC_RUN_ID", ""),
        )

    @property
    def has_agent(self) -> bool:
        """Whether torchrun's agent started this process."""
        return bool(self.job)

    @property
    def keeps_store(self) -> bool:
        """Whether this process hosts the store."""
        return self.rank == 0 and not self.agents_store

    def interface(self, listen: str | None) -> str:
        """The interface to listen on: the user's choice, loopback on one machine, else the one towards the others."""
        if listen is not None:
            return interface_of(listen)
        if self.local_size == self.size or is_only_here(self.host):
            return LOOPBACK
        return interface_outwards() if is_loopback(self.host) else interface_towards(self.host)

    def store_address(self, listen: str | None) -> str:
        """The address on which the store of worker 0 listens."""
        if listen is None and (is_only_here(self.host) or not is_loopback(self.host)):
            return self.host
        return address_of(self.interface(listen))


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment.get(name, "0"))
    except ValueError:
        raise ConfigError(f"{name}={environment[name]!r} in the environment is not a number") from None
