"""All rows that a run reads: its prompts, and pre-train rows if the workload has that loss."""

from automap.executor.data.files import DataError
from automap.executor.data.pretrain import PretrainData
from automap.executor.data.prompts import PromptData
from automap.executor.data.shuffled import DataPosition
from automap.executor.settings import RunSettings
from automap.planner.spec import WorkloadSpec


class RunData:
    """The files of one run, and how far they are read."""

    def __init__(self, settings: RunSettings, workload: WorkloadSpec, *, vocab_size: int) -> None:
        """Open them.

        Args:
            settings: Settings of the run.
            workload: Workload of the plan.
            vocab_size: The smallest of the models': no token id may be as large.

        Raises:
            DataError: a file cannot be used, or pre-train data are missing or superfluous.
        """
        longest_prompt = workload.prompt_length.max_tokens
        self.prompts = PromptData(
            settings.data,
            max_prompt_length=longest_prompt,
            seed=settings.seed,
            vocab_size=vocab_size,
        )
        self.pretrain: PretrainData | None = None
        if workload.pretrain_loss != (settings.data.pretrain is not None):
            raise DataError(_unlike(workload))
        if settings.data.pretrain is not None:
            self.pretrain = PretrainData(
                settings.data,
                max_tokens=longest_prompt + workload.response_length.max_tokens,
                seed=settings.seed,
                vocab_size=vocab_size,
            )

    def check_rows(self) -> None:
        """DataError if any row of token ids cannot be used; text is read when it is due."""
        for source in self._streams().values():
            source.check_rows()

    def state(self) -> dict[str, DataPosition]:
        """The position of every file."""
        return {name: source.state() for name, source in self._streams().items()}

    def load_state(self, state: dict[str, DataPosition]) -> None:
        """Continue behind the batches that came before `state`.

        Raises:
            DataError: a position is missing, or of another file or seed.
        """
        for name, source in self._streams().items():
            if name not in state:
                raise DataError(
                    f"data.{name}: the checkpoint is of a run without it; start anew with "
                    "checkpoint.resume: false"
                )
            source.load_state(state[name])

    def _streams(self) -> dict[str, PromptData | PretrainData]:
        given = {"prompts": self.prompts, "pretrain": self.pretrain}
        return {name: source for name, source in given.items() if source is not None}


def _unlike(workload: WorkloadSpec) -> str:
    if workload.pretrain_loss:
        return (
            "data.pretrain: workload.pretrain_loss is true and needs rows of pre-train text; give "
            "{path: FILE.jsonl}, or set workload.pretrain_loss to false"
        )
    return (
        "data.pretrain: workload.pretrain_loss is false, so nothing would read it; remove it, or "
        "plan with pretrain_loss: true"
    )
