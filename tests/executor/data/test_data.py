"""Prompts: what is read, in which order, where a run takes up again, and what is refused."""

from itertools import count
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from automap.executor.data import DataError, DataPosition, PromptData, answers_of, epoch_order
from automap.executor.settings import DataSettings
from tests.executor.data.prompt_files import ids, jsonl, tokenizer


def stream(path: Path, *, longest: int = 8, seed: int = 0, **settings: Any) -> PromptData:
    return PromptData(
        DataSettings(path=path, **settings), max_prompt_length=longest, seed=seed, vocab_size=256
    )


def prompts_of(data: PromptData, count: int) -> dict[int, list[int]]:
    batch = data.next_batch(count)
    rows = [row.tolist() for row in batch.ragged("prompt_tokens").rows()]
    return dict(zip(batch.tensor("prompt_id").tolist(), rows, strict=True))


def seed_that_ends_with_the_last(num_rows: int) -> int:
    """A seed whose first order has the file's last row at its end."""
    last = num_rows - 1
    return next(each for each in count() if epoch_order(num_rows, seed=each, epoch=0)[-1] == last)


def order(data: PromptData, number: int) -> list[int]:
    return data.next_batch(number).tensor("prompt_id").tolist()


ROWS = [{"prompt": [5, number], "answer": f"größer {number}"} for number in range(10)]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_rows_of_both_formats_arrive_with_ids_and_answers(tmp_path: Path, kind: str) -> None:
    path = jsonl(tmp_path, ROWS)
    if kind == "parquet":
        path = tmp_path / "prompts.parquet"
        # Row groups of 3 rows: a row is found across them.
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path, row_group_size=3)
    batch = stream(path, answer_column="answer").next_batch(10)
    numbers = batch.tensor("prompt_id").tolist()
    assert sorted(numbers) == list(range(10))
    assert [row.tolist() for row in batch.ragged("prompt_tokens").rows()] == [
        [5, number] for number in numbers
    ]
    assert answers_of(batch.ragged("answer")) == [f"größer {number}" for number in numbers]


def test_prompts_say_in_which_pass_over_the_data_they_are_drawn(tmp_path: Path) -> None:
    data = stream(jsonl(tmp_path, ROWS))
    epochs = [data.next_batch(4).tensor("prompt_epoch").tolist() for _ in range(5)]
    assert [each for batch in epochs for each in batch] == [0] * 10 + [1] * 10
    again = stream(jsonl(tmp_path, ROWS))
    again.load_state(data.state())
    assert again.next_batch(1).tensor("prompt_epoch").tolist() == [2]


def test_answers_may_lie_in_a_struct_be_empty_or_be_numbers(tmp_path: Path) -> None:
    rows = [
        {"prompt": [1], "reward_model": {"ground_truth": truth}} for truth in ("72", "", 3, [1, 2])
    ]
    data = stream(jsonl(tmp_path, rows), answer_column="reward_model.ground_truth")
    batch = data.next_batch(4)
    answers = dict(
        zip(batch.tensor("prompt_id").tolist(), answers_of(batch.ragged("answer")), strict=True)
    )
    assert answers == {0: "72", 1: "", 2: "3", 3: "[1, 2]"}


def test_a_nested_parquet_column_is_found(tmp_path: Path) -> None:
    table = pyarrow.Table.from_pylist(
        [{"prompt": [1], "reward_model": {"ground_truth": "7", "style": "rule"}, "other": 1}]
    )
    pyarrow.parquet.write_table(table, tmp_path / "p.parquet")
    data = stream(tmp_path / "p.parquet", answer_column="reward_model.ground_truth")
    assert answers_of(data.next_batch(1).ragged("answer")) == ["7"]


def test_text_is_tokenised_and_chats_go_through_the_template(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path)
    texts = jsonl(tmp_path, [{"prompt": "a b c"}, {"prompt": "d"}])
    plain = prompts_of(stream(texts, tokenizer=folder), 2)
    assert plain == {0: ids("<s> a b c"), 1: ids("<s> d")}
    chat = prompts_of(stream(texts, tokenizer=folder, chat_template=True), 2)
    # The template says itself where a text begins: no second <s>.
    assert chat == {0: ids("<user> a b c <assistant>"), 1: ids("<user> d <assistant>")}
    messages = [{"role": "system", "content": "e"}, {"role": "user", "content": "a"}]
    rows = jsonl(tmp_path, [{"prompt": messages}], "chat.jsonl")
    told = prompts_of(stream(rows, tokenizer=folder, chat_template=True), 1)
    assert told == {0: ids("<system> e <user> a <assistant>")}


def test_chats_of_a_parquet_file_are_read(tmp_path: Path) -> None:
    rows = [{"prompt": [{"role": "user", "content": "a b"}]}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "p.parquet")
    data = stream(tmp_path / "p.parquet", tokenizer=tokenizer(tmp_path), chat_template=True)
    assert prompts_of(data, 1) == {0: ids("<user> a b <assistant>")}


def test_every_epoch_has_every_row_once_in_an_order_of_seed_and_epoch(tmp_path: Path) -> None:
    path = jsonl(tmp_path, ROWS)
    data = stream(path, seed=7)
    # Batches of 4 do not divide 10 rows: the third batch spans two epochs.
    seen = [number for _ in range(5) for number in order(data, 4)]
    first, second = seen[:10], seen[10:]
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert first != list(range(10))
    again = stream(path, seed=7)
    assert order(again, 20) == seen, "the order depends on how many are asked for"
    assert order(stream(path, seed=8), 10) != first


def test_the_order_of_a_seed_is_for_good(tmp_path: Path) -> None:
    """A checkpoint taken with one release is continued with the next: these are fixed."""
    first, second = [0, 8, 9, 3, 7, 5, 1, 2, 6, 4], [3, 7, 4, 2, 9, 8, 1, 6, 5, 0]
    assert order(stream(jsonl(tmp_path, ROWS), seed=0), 20) == [*first, *second]


def test_a_batch_may_be_larger_than_the_file(tmp_path: Path) -> None:
    data = stream(jsonl(tmp_path, ROWS[:3]))
    numbers = order(data, 7)
    assert sorted(numbers[:3]) == sorted(numbers[3:6]) == [0, 1, 2]
    assert data.state().epoch == 2
    assert data.state().position == 1


@pytest.mark.parametrize("taken", range(0, 25, 3))
def test_a_saved_position_continues_the_stream(tmp_path: Path, taken: int) -> None:
    rows = [{"prompt": [1] * (1 + number % 4)} for number in range(10)]
    path = jsonl(tmp_path, rows)
    whole = stream(path, seed=3, longest=3, overlong="drop")
    begun = [order(whole, 1)[0] for _ in range(taken)]
    assert all(number % 4 < 3 for number in begun), "longer than 3 tokens"
    saved = whole.state().model_dump_json()
    expected = order(whole, 9)
    resumed = stream(path, seed=3, longest=3, overlong="drop")
    resumed.next_batch(2)
    resumed.load_state(DataPosition.model_validate_json(saved))
    assert order(resumed, 9) == expected
    assert resumed.state() == whole.state()


@pytest.mark.parametrize("taken", [1, 3, 8])
def test_what_was_read_before_it_was_due_changes_nothing(tmp_path: Path, taken: int) -> None:
    path = jsonl(tmp_path, ROWS)
    data, plain = stream(path), stream(path)
    for source in (data, plain):
        order(source, taken)
    before = data.state()
    data.prepare(4)
    data.prepare(4)
    assert data.state() == before
    resumed = stream(path)
    resumed.load_state(data.state())
    wanted = order(plain, 4)
    assert order(data, 4) == order(resumed, 4) == wanted
    assert data.state() == plain.state()


def test_another_number_of_prompts_than_was_prepared_begins_at_the_same_row(tmp_path: Path) -> None:
    path = jsonl(tmp_path, ROWS)
    data, plain = stream(path), stream(path)
    data.prepare(9)
    assert order(data, 2) == order(plain, 2)
    data.prepare(3)
    data.load_state(stream(path).state())
    assert order(data, 3) == order(stream(path), 3)


def test_a_bad_row_that_was_prepared_is_named_when_it_is_due(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [*ROWS, {"prompt": [5, "six"]}]
    data = stream(jsonl(tmp_path, rows), seed=seed_that_ends_with_the_last(len(rows)))
    order(data, len(rows) - 1)
    data.prepare(1)
    with pytest.raises(DataError, match="line 11"):
        data.next_batch(1)


def test_a_position_of_another_file_or_seed_is_refused(tmp_path: Path) -> None:
    position = stream(jsonl(tmp_path, ROWS), seed=1).state()
    other = jsonl(tmp_path, [*ROWS[:-1], {"prompt": [5, 8], "answer": "x"}], "other.jsonl")
    with pytest.raises(DataError, match=r"other\.jsonl is not the file of the checkpoint"):
        stream(other, seed=1).load_state(position)
    moved = jsonl(tmp_path, ROWS, "moved.jsonl")
    with pytest.raises(DataError, match=r"seed: 2, but the checkpoint's order .* seed 1"):
        stream(moved, seed=2).load_state(position)
    stream(moved, seed=1).load_state(position)


def test_long_prompts_are_an_error_dropped_or_cut(tmp_path: Path) -> None:
    path = jsonl(tmp_path, [{"prompt": [1, 2, 3]}, {"prompt": [4, 5, 6, 7, 8]}])
    with pytest.raises(DataError, match=r"line 2: the prompt has 5 tokens, and at most 3"):
        stream(path, longest=3).next_batch(2)
    dropping = stream(path, longest=3, overlong="drop")
    assert order(dropping, 4) == [0, 0, 0, 0]
    cut = prompts_of(stream(path, longest=3, overlong="truncate_left"), 2)
    assert cut == {0: [1, 2, 3], 1: [6, 7, 8]}
    with pytest.raises(DataError, match="leaves none of the 2 prompts"):
        stream(path, longest=2, overlong="drop").next_batch(1)


def test_only_the_rows_that_are_due_are_tokenised(tmp_path: Path) -> None:
    """A bad row at the end of a large file costs nothing before it is reached."""
    rows = [*({"prompt": [1]} for _ in range(1000)), {"prompt": "text"}]
    data = stream(jsonl(tmp_path, rows))
    data.next_batch(10)
    with pytest.raises(DataError, match=r"line 1001: .*: set data\.tokenizer"):
        data.next_batch(1001)


BAD_ROWS: list[tuple[object, str]] = [
    ({"prompt": 5}, r"line 2: the prompt is a int; text, chat messages or a list"),
    ({"prompt": None}, r"line 2: the prompt is missing"),
    ({"prompt": []}, r"line 2: the prompt has no tokens"),
    ({"prompt": [1, "a"]}, r"line 2: 'a' among the token ids is a str"),
    ({"prompt": [1, True]}, r"line 2: True among the token ids is a bool"),
    ({"prompt": [1, -1]}, r"line 2: token id -1 is outside the vocabulary, 0 to 255"),
    ({"prompt": [256]}, r"line 2: token id 256 is outside the vocabulary, 0 to 255"),
    ({"prompt": [{"role": "user", "content": "a"}]}, r"line 2: .* set data.tokenizer and chat"),
    ({"question": [1]}, r"data.prompt_column: no column 'prompt' in .*line 2; .*\['question'\]"),
    ([1, 2], r"line 2: a list, not an object"),
]


@pytest.mark.parametrize(("row", "message"), BAD_ROWS)
def test_a_bad_row_is_named_with_its_line(tmp_path: Path, row: object, message: str) -> None:
    data = stream(jsonl(tmp_path, [{"prompt": [1]}, row]))
    with pytest.raises(DataError, match=message):
        data.next_batch(2)


def test_lines_that_are_not_json_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"prompt": [1]}\r\n{"prompt": [2]}\n\n  \n')
    assert sorted(order(stream(path), 2)) == [0, 1], "blank lines at the end are no rows"
    path.write_bytes(b'{"prompt": [1]}\n{"prompt": [2]}')
    assert sorted(order(stream(path), 2)) == [0, 1], "the last line may lack its end"
    path.write_bytes(b'{"prompt": [1]}\n\n{"prompt": [2]}\n')
    with pytest.raises(DataError, match="line 2: not JSON"):
        stream(path).next_batch(3)
    path.write_bytes(b'{"prompt": [1]}\n{"prompt": [2}\n')
    with pytest.raises(DataError, match="line 2: not JSON"):
        stream(path).next_batch(2)


def test_lines_are_found_across_the_chunks_of_a_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = jsonl(tmp_path, ROWS)
    expected = stream(path, seed=2)
    monkeypatch.setattr("automap.executor.data.files.CHUNK_BYTES", 7)
    chunked = stream(path, seed=2)
    assert chunked.state() == expected.state(), "the same fingerprint"
    assert prompts_of(chunked, 10) == prompts_of(expected, 10)


def test_what_is_wrong_with_the_file_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.path: there is no file .*nothing\.jsonl"):
        stream(tmp_path / "nothing.jsonl")
    for name in ("empty.jsonl", "blank.jsonl"):
        (tmp_path / name).write_text("" if name == "empty.jsonl" else "\n\n")
        with pytest.raises(DataError, match="has no rows"):
            stream(tmp_path / name)
    empty = pyarrow.table({"prompt": pyarrow.array([], "string")})
    pyarrow.parquet.write_table(empty, tmp_path / "empty.parquet")
    with pytest.raises(DataError, match="has no rows"):
        stream(tmp_path / "empty.parquet")
    (tmp_path / "p.csv").write_text("prompt\n")
    with pytest.raises(DataError, match=r"must end in \.parquet or \.jsonl"):
        stream(tmp_path / "p.csv")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(DataError, match=r"cannot read .*broken\.parquet as Parquet"):
        stream(tmp_path / "broken.parquet")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_missing_column_names_those_that_exist(tmp_path: Path, kind: str) -> None:
    rows = [{"question": "a", "label": "b"}]
    path = jsonl(tmp_path, rows)
    if kind == "parquet":
        path = tmp_path / "p.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    with pytest.raises(DataError, match=r"prompt_column: no column 'prompt' .*'label', 'question'"):
        stream(path)
    with pytest.raises(DataError, match=r"answer_column: no column 'answer' .*'label'"):
        stream(path, prompt_column="question", answer_column="answer")
    with pytest.raises(DataError, match=r"answer_column: no column 'label\.x'"):
        stream(path, prompt_column="question", answer_column="label.x")


def test_what_is_wrong_with_the_tokenizer_is_said_at_once(tmp_path: Path) -> None:
    path = jsonl(tmp_path, [{"prompt": "a"}])
    with pytest.raises(DataError, match=r"line 1: the prompt is text: set data\.tokenizer"):
        stream(path)
    with pytest.raises(DataError, match=r"data\.tokenizer: there is no folder .*nowhere"):
        stream(path, tokenizer=tmp_path / "nowhere")
    (tmp_path / "hollow").mkdir()
    with pytest.raises(DataError, match=r"data\.tokenizer: .*hollow holds no tokenizer"):
        stream(path, tokenizer=tmp_path / "hollow")
    with pytest.raises(DataError, match="chat_template: true needs a tokenizer"):
        stream(path, chat_template=True)
    without = tokenizer(tmp_path, chat_template=None)
    with pytest.raises(DataError, match="has no chat template"):
        stream(path, tokenizer=without, chat_template=True)
