"""From what a file holds to token ids: text, chat messages, or token ids as they are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from executor.data.files import DataError
from executor.settings import DataSettings


def load_tokenizer(folder: Path) -> Any:
    """A Hugging Face tokenizer from a local folder; nothing is fetched.

    Raises:
        DataError: the folder is missing or holds no tokenizer.
    """
    if not folder.is_dir():
        raise DataError(f"data.tokenizer: there is no folder {folder}")
    # Takes seconds to import, and prompts of token ids need none of it.
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # transformers raises many kinds, from OSError to KeyError
        raise DataError(f"data.tokenizer: {folder} holds no tokenizer: {error}") from error


class PromptEncoder:
    """Makes token ids of a prompt and refuses, with its place, one that it cannot read."""

    def __init__(self, settings: DataSettings, *, vocab_size: int | None = None) -> None:
        """`vocab_size` bounds the token ids that a file gives itself."""
        self._chat = settings.chat_template
        self._vocab_size = vocab_size
        self._tokenizer = None
        if settings.tokenizer is not None:
            self._tokenizer = load_tokenizer(settings.tokenizer)
            if self._chat and self._tokenizer.chat_template is None:
                raise DataError(
                    f"data.chat_template: the tokenizer {settings.tokenizer} has no chat template; "
                    "use chat_template: false, or a tokenizer that has one"
                )
        elif self._chat:
            raise DataError("data.tokenizer: chat_template: true needs a tokenizer folder")

    def token_ids(self, prompt: object, where: str) -> list[int]:
        """Of one prompt; text that starts a chat becomes its first user message.

        Raises:
            DataError: not text, messages or token ids, or not with these settings; or no tokens.
        """
        if isinstance(prompt, str):
            tokens = self._of_text(prompt, where)
        elif isinstance(prompt, list) and all(isinstance(item, dict) for item in prompt) and prompt:
            tokens = self._of_messages(prompt, where)
        elif isinstance(prompt, list):
            tokens = self._checked(prompt, where)
        else:
            raise DataError(
                f"{where}: the prompt is {_kind(prompt)}; text, chat messages or a list of token "
                "ids would do"
            )
        if not tokens:
            raise DataError(f"{where}: the prompt has no tokens")
        return tokens

    def _of_text(self, prompt: str, where: str) -> list[int]:
        if self._tokenizer is None:
            raise DataError(f"{where}: the prompt is text: set data.tokenizer to a folder")
        if self._chat:
            return self._of_messages([{"role": "user", "content": prompt}], where)
        return list(self._tokenizer(prompt)["input_ids"])

    def _of_messages(self, messages: Sequence[dict[str, Any]], where: str) -> list[int]:
        if self._tokenizer is None or not self._chat:
            raise DataError(
                f"{where}: the prompt is chat messages: set data.tokenizer and chat_template: true"
            )
        for message in messages:
            if not {"role", "content"} <= set(message):
                raise DataError(f"{where}: a message has {sorted(message)}, not role and content")
        encoded = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return list(encoded["input_ids"])

    def _checked(self, tokens: Sequence[object], where: str) -> list[int]:
        limit = self._vocab_size
        checked: list[int] = []
        for token in tokens:
            if not isinstance(token, int) or isinstance(token, bool):
                raise DataError(f"{where}: {token!r} among the token ids is {_kind(token)}")
            if token < 0 or (limit is not None and token >= limit):
                raise DataError(
                    f"{where}: token id {token} is outside the vocabulary, 0 to "
                    f"{'…' if limit is None else limit - 1}"
                )
            checked.append(token)
        return checked


def _kind(value: object) -> str:
    return "missing" if value is None else f"a {type(value).__name__}"
