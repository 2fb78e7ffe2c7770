"""Process groups that only their members make.

torch names such a group after its ranks and the number of groups that the process has at that
moment. Ranks of one group may have different numbers (the middle stages of a pipeline lack the
embedding group), and then wait for each other under different names. A name may also come back
after a group was destroyed, and with it the stale addresses in the store. Both end in a hang. So
groups get names here: the ranks, and how many groups over just these ranks were made before.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import torch.distributed as dist
from torch.distributed import distributed_c10d

_new_group = dist.new_group
_made: Counter[tuple[int, ...]] = Counter()


def new_local_group(ranks: Sequence[int], **options: Any) -> Any:
    """A process group that its members alone make, with its ranks in the given order.

    Every member must make its groups over the same ranks in the same order.
    """
    members = tuple(ranks)
    _made[members] += 1
    name = f"local-{'-'.join(map(str, members))}-{_made[members]}"
    with patch.object(distributed_c10d, "_process_group_name", lambda *_, **__: name):
        return _new_group(
            list(members), **options | {"use_local_synchronization": True, "sort_ranks": False}
        )
