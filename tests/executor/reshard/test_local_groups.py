"""Groups that only their members make, on four gloo processes with unlike histories."""

from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from automap.executor.reshard.local_groups import new_local_group
from tests.executor.ranks import Case, run_cases

pytestmark = pytest.mark.many_processes

TIMEOUT = timedelta(seconds=20)


def _sum_of_ranks(group: dist.ProcessGroup) -> int:
    total = torch.tensor([dist.get_rank()])
    dist.all_reduce(total, group=group)
    return int(total)


def meet_after_unlike_histories(folder: Path) -> None:
    """Ranks that have made unlike numbers of groups find each other."""
    for _ in range(dist.get_rank()):
        new_local_group([dist.get_rank()], timeout=TIMEOUT)
    assert _sum_of_ranks(new_local_group(range(4), timeout=TIMEOUT)) == 6


def meet_again(folder: Path) -> None:
    """A group over the same ranks as a destroyed one does not read what that one left."""
    for _ in range(10):
        group = new_local_group(range(4), timeout=TIMEOUT)
        assert _sum_of_ranks(group) == 6
        dist.destroy_process_group(group)


def keep_the_order(folder: Path) -> None:
    ranks = [2, 0, 3, 1]
    group = new_local_group(ranks, timeout=TIMEOUT)
    assert dist.get_rank(group) == ranks.index(dist.get_rank())


def leave_others_out(folder: Path) -> None:
    if dist.get_rank() in (1, 3):
        assert _sum_of_ranks(new_local_group([1, 3], timeout=TIMEOUT)) == 4


CASES: dict[str, Case] = {
    case.__name__: case
    for case in (meet_after_unlike_histories, meet_again, keep_the_order, leave_others_out)
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return run_cases(CASES, world_size=4, folder=tmp_path_factory.mktemp("groups"))


@pytest.mark.parametrize("case", CASES)
def test_groups(case: str, outcomes: dict[str, str | None]) -> None:
    assert outcomes[case] is None, outcomes[case]
