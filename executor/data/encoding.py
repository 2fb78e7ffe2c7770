"""From what a file holds to token ids: text, chat messages, or token ids as they are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from automap.executor.data.files import DataError
from automap.executor.folders import opened


def load_tokenizer(folder: Path, *, field: str = "data.tokenizer") -> Any:
    """A Hugging Face tokenizer from a local folder; nothing is fetched.

    `field` is the setting that names it.

    Raises:
        DataError: the folder is missing or holds no tokenizer.
    """
    folder = opened(folder, field=field)
    if not folder.is_dir():
        raise DataError(f"{field}: there is no folder {folder}")
    # Takes seconds to import, and prompts of token ids need none of it.
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)  # nosec B615
    except Exception as error:  # transformers raises many kinds, from OSError to KeyError
        raise DataError(f"{field}: {folder} holds no tokenizer: {error}") from error


class Encoder:
    """Makes token ids of what a row holds and refuses, with its place, what it cannot read."""

    def __init__(
        self,
        tokenizer: Path | None,
        *,
        what: str = "prompt",
        field: str = "data.tokenizer",
        chat_template: bool = False,
        vocab_size: int | None = None,
    ) -> None:
        """Load the tokenizer, if there is one.

        Args:
            tokenizer: A folder; None: rows are lists of token ids.
            what: Rows hold, for messages.
            field: The setting that names the tokenizer.
            chat_template: Text is a user's message of a chat.
            vocab_size: Vocabulary of the models; no row may have a token id from there on.
        """
        self._what, self._field = what, field
        self._chat = chat_template
        self._vocab_size = vocab_size
        self._tokenizer = None
        if tokenizer is not None:
            self._tokenizer = load_tokenizer(tokenizer, field=field)
            if self._chat and self._tokenizer.chat_template is None:
                raise DataError(
                    f"data.chat_template: the tokenizer {tokenizer} has no chat template; "
                    "use chat_template: false, or a tokenizer that has one"
                )
        elif self._chat:
            raise DataError(f"{field}: chat_template: true needs a tokenizer folder")

    def token_ids(self, value: object, where: str) -> list[int]:
        """Token ids of one row; text that starts a chat becomes its first user message.

        Raises:
            DataError: not text, messages or token ids, or not with these settings; or no tokens.
        """
        if isinstance(value, str):
            tokens = self._of_text(value, where)
        elif isinstance(value, list) and all(isinstance(item, dict) for item in value) and value:
            tokens = self._of_messages(value, where)
        elif isinstance(value, list):
            tokens = value
        else:
            raise DataError(
                f"{where}: the {self._what} is {_kind(value)}; text, chat messages or a list of "
                "token ids would do"
            )
        if not tokens:
            raise DataError(f"{where}: the {self._what} has no tokens")
        return self._checked(tokens, where)

    def _of_text(self, text: str, where: str) -> list[int]:
        if self._tokenizer is None:
            raise DataError(f"{where}: the {self._what} is text: set {self._field} to a folder")
        if self._chat:
            return self._of_messages([{"role": "user", "content": text}], where)
        return list(self._tokenizer(text)["input_ids"])

    def _of_messages(self, messages: Sequence[dict[str, Any]], where: str) -> list[int]:
        if self._tokenizer is None or not self._chat:
            raise DataError(
                f"{where}: the {self._what} is chat messages: set data.tokenizer and "
                "chat_template: true"
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
