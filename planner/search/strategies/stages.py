"""Generation, preparation, training: the three stages between which HybridFlow sees barriers.

A problem knows calls and what waits for what, not their kinds. The kinds show in the edges: the
next iteration waits for the weights that a train call makes, and generation waits for nothing.
"""

from automap.planner.search.model.options import copies_of
from automap.planner.search.model.problem import Problem

GENERATION, PREPARATION, TRAINING = range(3)
NUM_STAGES = 3


def stages_of(problem: Problem) -> list[int]:
    """Per call its stage.

    Training: a later iteration waits for the call (an edge at distance ≥ 1), or the call comes
    after one of those within the iteration. Generation: nothing in the iteration comes before the
    call, or a shadow (which only generates) can serve it. Preparation: the others. Several
    rollouts, as in ReMax, share the generation stage.
    """
    sources: list[set[int]] = [set() for _ in problem.calls]
    for edge in problem.precedences:
        if edge.distance == 0:
            sources[edge.target].add(edge.source)
    training = {edge.source for edge in problem.precedences if edge.distance > 0}
    changed = True
    while changed:
        after = {call for call, before in enumerate(sources) if before & training}
        changed = not after <= training
        training |= after
    shadows = {i for i, copy in enumerate(problem.copies) if copy.shadow_of is not None}
    stages = []
    for call, choice in enumerate(problem.calls):
        generates = not sources[call] or not shadows.isdisjoint(copies_of(choice.options))
        stages.append(TRAINING if call in training else GENERATION if generates else PREPARATION)
    return stages
