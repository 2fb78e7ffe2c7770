"""Prompts for a run: files, tokenizers, chat templates, shuffling with a resumable position."""

from executor.data.encoding import load_tokenizer
from executor.data.files import DataError
from executor.data.prompts import DataPosition, PromptData, answers_of

__all__ = ["DataError", "DataPosition", "PromptData", "answers_of", "load_tokenizer"]
