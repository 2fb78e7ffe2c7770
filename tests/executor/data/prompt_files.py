"""Small files of prompts, and a tokenizer of ten words."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHAT_TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
WORDS = ["<unk>", "<s>", "<user>", "<system>", "<assistant>", "a", "b", "c", "d", "e"]


def jsonl(folder: Path, rows: Sequence[Any], name: str = "prompts.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def tokenizer(folder: Path, *, chat_template: str | None = CHAT_TEMPLATE) -> Path:
    """One token per word; text starts with <s>, as Llama's does."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = WhitespaceSplit()
    words.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    fast = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", bos_token="<s>")
    fast.chat_template = chat_template
    fast.save_pretrained(folder / "tokenizer")
    return folder / "tokenizer"


def ids(text: str) -> list[int]:
    return [WORDS.index(word) for word in text.split()]
