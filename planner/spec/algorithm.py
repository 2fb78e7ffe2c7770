"""The name of a job's algorithm: how it may be spelled, and what is said of relatives."""

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator

from automap.planner.errors import FieldValueError

AlgorithmName = Literal["ppo", "grpo", "remax", "safe_rlhf", "rloo", "reinforce_plus_plus", "dapo"]

_RELATIVES_OF_GRPO = {
    "gspo": "GSPO is GRPO with one importance ratio per response",
    "drgrpo": "Dr. GRPO is GRPO that divides by neither length nor spread",
    "cispo": "CISPO is GRPO that clips the weight of a token, not its loss",
}
"""Algorithms whose calls are those of grpo, and their plans too; a run would train otherwise."""
_WITHOUT_ROLLOUTS = ("sft", "dpo", "ipo", "kto", "orpo")


def _canonical(given: object) -> object:
    """The built-in algorithm that is meant by a name in any case, with hyphens or ++."""
    if not isinstance(given, str):
        return given
    name = re.sub(r"[\s._-]+", "_", given.strip().lower().replace("++", "_plus_plus"))
    if (relative := _RELATIVES_OF_GRPO.get(name.replace("_", ""))) is not None:
        raise FieldValueError(
            "",
            f"{relative}; it makes the same calls, so its plan is that of grpo",
            remedy="write grpo to plan it; a run of that plan trains with the loss of GRPO",
        )
    if name in _WITHOUT_ROLLOUTS:
        raise FieldValueError(
            "",
            "learns from stored answers, and jobs here generate theirs",
            remedy="use an algorithm with rollouts, for example grpo, or give a dataflow",
        )
    if ":" in given:
        raise FieldValueError(
            "",
            "names a program of your own, which only the command line reads from a file",
            remedy="plan it with `automap plan`, or give its calls and edges as dataflow",
        )
    return name


GivenAlgorithm = Annotated[AlgorithmName, BeforeValidator(_canonical)]
"""An AlgorithmName in any spelling: `PPO`, `Safe-RLHF`, `REINFORCE++`."""
