"""Rows for a run: files, tokenizers, chat templates, shuffling with a resumable position."""

from automap.executor.data.encoding import load_tokenizer
from automap.executor.data.files import DataError
from automap.executor.data.pretrain import PretrainData
from automap.executor.data.prompts import PromptData, answers_of
from automap.executor.data.read_ahead import ReadAhead
from automap.executor.data.shuffled import DataPosition, epoch_order
from automap.executor.data.sources import RunData

__all__ = [
    "DataError",
    "DataPosition",
    "PretrainData",
    "PromptData",
    "ReadAhead",
    "RunData",
    "answers_of",
    "epoch_order",
    "load_tokenizer",
]
