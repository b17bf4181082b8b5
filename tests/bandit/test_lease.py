"""A lease is held by one at a time."""

from __future__ import annotations

from treetop.bandit.lease import Lease
from treetop.log.open import open_log


def test_one_lease_is_held_by_one_at_a_time(place: str) -> None:
    now = [0.0]
    with open_log(place) as log:
        leases = [Lease(log, name, 10.0, lambda: now[0]) for name in "abc"]
        held = []
        for step in range(200):
            now[0] += 1.0
            for i, lease in enumerate(leases):
                if not (step < 60 and i == 0 and step > 20):  # the first is silent for a while
                    lease.take()
            assert sum(lease.held for lease in leases) <= 1
            held.append(next((lease.holder for lease in leases if lease.held), ""))
        assert held[:20] == ["a"] * 20
        assert held[59] == held[-1] == "b"  # taken over, and not taken back
        leases[1].release()
        assert leases[2].take()
