"""Tokens and answers of the simulated models."""

from hypothesis import given, settings
from hypothesis import strategies as st

from aibrix_operator.sim.engine import tokens

UNTIMED = settings(deadline=None)  # a busy machine makes no answer wrong


def ask(prompt="hi", **parameters):
    return tokens.answer("m", prompt, **{"max_tokens": 1000, **parameters})


def text_of(answer):
    return answer.text(0, answer.length)


@UNTIMED
@given(st.text())
def test_tokens_together_are_the_text_and_none_is_longer_than_the_bound(text):
    split = tokens.split(text)
    assert "".join(split) == text
    assert all(1 <= len(token) <= tokens.MAX_TOKEN_CHARACTERS for token in split)


@UNTIMED
@given(st.text(), st.integers(1, 300))
def test_an_answer_sent_back_counts_the_tokens_it_was_billed_for(prompt, max_tokens):
    answer = ask(prompt, max_tokens=max_tokens)
    assert len(tokens.split(text_of(answer))) == answer.length <= max_tokens


@UNTIMED
@given(st.text(), st.integers(1, 50))
def test_a_shorter_limit_gives_the_start_of_the_same_answer(prompt, max_tokens):
    whole, short = ask(prompt), ask(prompt, max_tokens=max_tokens)
    assert text_of(whole).startswith(text_of(short))
    assert short.finish_reason == ("length" if whole.length > max_tokens else "stop")


def test_prompt_model_and_seed_each_change_the_answer():
    answers = [ask(), ask("ho"), ask(seed=1), tokens.answer("other", "hi", max_tokens=1000)]
    assert len({text_of(answer) for answer in answers}) == 4


def test_a_model_ends_by_itself_unless_told_to_ignore_it():
    assert (ask().finish_reason, 16 <= ask().length <= 255) == ("stop", True)
    endless = ask(ignore_eos=True)
    assert (endless.finish_reason, endless.length) == ("length", 1000)
    assert ask(min_tokens=400).length == 400


@UNTIMED
@given(st.text(max_size=10), st.integers(0, 60), st.integers(1, 9))
def test_a_stop_text_ends_the_answer_right_before_its_first_place(prompt, at, size):
    whole = ask(prompt, max_tokens=100, ignore_eos=True)
    mark = text_of(whole)[at : at + size]
    stopped = ask(prompt, max_tokens=100, ignore_eos=True, stop=["no such words", mark])
    assert text_of(stopped) == text_of(whole).split(mark, 1)[0]
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", mark)


def test_a_stop_text_that_never_comes_changes_nothing():
    assert ask(stop=["no such words"]) == ask()


def test_tokens_and_their_numbers_are_stable():
    assert tokens.split("hello wonderful  world!") == ["hello", " wonde", "rful", " ", " world", "!"]
    assert [tokens.token_id(token) for token in ("hello", " wonde", "rful")] == [20870, 7233, 20825]
