"""Workers that lie together: a vote learns on while they are fewer than half; one that shouts ends an average."""

from __future__ import annotations

import pytest

from lioncub.errors import ConfigError
from lioncub.tools.bench.hostile import HostileConfig, Trial, starting_loss, table, train, trials
from lioncub.tools.data.stdlib import load_stdlib

STEPS = 60


@pytest.mark.slow
def test_a_vote_bears_liars_up_to_half_and_an_average_none_that_shouts() -> None:
    text = load_stdlib().train.long()
    start = starting_loss(text)

    def learned(codec: str, attack: str, workers: int, liars: int) -> float:
        return start - train(Trial(codec, attack, workers, liars, 0), text, STEPS).loss

    assert learned("vote", "flip", 8, 3) > 1.5
    assert learned("vote", "magnitude", 9, 4) > 1
    assert learned("vote", "flip", 8, 4) < 0.5, "half of the workers is too many"
    assert learned("dense", "flip", 9, 4) > 1.5
    assert learned("dense", "magnitude", 9, 1) < -10


def test_every_number_of_liars_is_in_the_table() -> None:
    config = HostileConfig(workers=(3,), most_liars=1, seeds=2)
    made_up = [Trial(s.codec, s.attack, s.workers, s.liars, s.seed, 1.0 + s.seed) for s in trials(config)]
    assert table(made_up, "flip", 5.0).rows == [[codec, "3", "1.500", "1.500"] for codec in ("vote", "mean", "dense")]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="fewer than the workers"):
        HostileConfig(workers=(3, 4), most_liars=3)
