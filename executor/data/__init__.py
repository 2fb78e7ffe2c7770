"""Rows for a run: files, tokenizers, chat templates, shuffling with a resumable position."""

from executor.data.encoding import load_tokenizer
from executor.data.files import DataError
from executor.data.pretrain import PretrainData
from executor.data.prompts import PromptData, answers_of
from executor.data.shuffled import DataPosition, epoch_order
from executor.data.sources import RunData

__all__ = [
    "DataError",
    "DataPosition",
    "PretrainData",
    "PromptData",
    "RunData",
    "answers_of",
    "epoch_order",
    "load_tokenizer",
]
