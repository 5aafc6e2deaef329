"""Twenty seeds of the fault campaign (`make test-faults SEEDS=200` has more), and does a campaign notice anything?"""

from __future__ import annotations

import pytest

from runtime.delivery.deliveries import Deliveries
from tests.faults.__main__ import command, main
from tests.faults.campaign import Tally, run

SEEDS = 20


@pytest.mark.parametrize("first", range(0, SEEDS, 5))
def test_no_seed_differs_from_the_oracle(first):
    tally = Tally()
    for seed in range(first, first + 5):
        fate, _, outcome = run(seed)
        assert outcome.differences == (), f"{fate}\nreproduce: {command(seed)}"
        tally.add(fate, outcome)
    assert tally.rows > 0
    assert tally.deaths is not None and tally.deaths.total() >= 3, f"hardly anything happened: {tally}"


def test_the_same_seed_is_the_same_campaign():
    assert run(1) == run(1)


def test_a_campaign_names_a_failing_seed_and_how_to_repeat_it(monkeypatch, capsys):
    monkeypatch.setattr(Deliveries, "announce", lambda self, state: None)  # nothing gets to the sinks any more
    bad = next(seed for seed in range(100) if run(seed)[2].differences)
    assert main(["--seeds", "1", "--first", str(bad)]) == 1
    said = capsys.readouterr().out
    assert "its sink lacks" in said
    assert command(bad) in said
    assert main(["--seed", str(bad)]) == 1
