"""Function reward: its arguments, and errors that name the text that caused them."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from example_rewards import attempts, build_combined_reward, values
from hypothesis import given
from hypothesis import strategies as st

from meristem.config.errors import MeristemError, RecipeError
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.reward_base import PromptCompletion
from meristem.reinforce.reward_specs import parse_reward_specs

NUMBERS = itertools.count()
Make = Callable[..., CombinedReward]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A reward from the lines of a module beside us."""
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)

    def build(code: str, name: str = "score") -> CombinedReward:
        module = f"my_reward_{next(NUMBERS)}"
        (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
        return build_combined_reward({"name": "function", "call": f"{module}:{name}"})

    yield build
    sys.path[:] = before


def error_message(rewards: CombinedReward, *texts: str, **fields: object) -> str:
    with pytest.raises(MeristemError) as error:
        values(rewards, *texts, **fields)
    return str(error.value)


def test_prompts_completions_columns_and_references_arrive_as_lists(make: Make) -> None:
    reward = make(
        "seen = []\ndef score(prompts, completions, **columns):\n"
        "    seen.append((prompts, completions, columns))\n    return [len(c) for c in completions]\n"
    )
    prompt_completion = PromptCompletion(prompt="p", text="abc", references=("r", "s"), columns={"topic": "sea"})
    assert reward.score([prompt_completion, PromptCompletion(prompt="q", text="")]).total.tolist() == [3.0, 0.0]
    module = sys.modules[reward.rewards["function"].call.partition(":")[0]]  # type: ignore[attr-defined]
    assert module.seen == [(["p", "q"], ["abc", ""], {"topic": ["sea", None], "references": [["r", "s"], []]})]


def test_a_function_is_given_only_the_columns_that_it_names(make: Make) -> None:
    named = make("def score(prompts, completions, topic):\n    return [float(t == 'sea') for t in topic]\n")
    assert values(named, "x", columns={"topic": "sea", "other": 1}) == [1.0]
    without_columns = make("def score(completions, prompts):\n    return [float(len(c)) for c in completions]\n")
    assert values(without_columns, "abcd", columns={"topic": "sea"}) == [4.0]


@pytest.mark.parametrize(
    "answer",
    [
        "np.array([1, 2])",
        "torch.tensor([1.0, 2.0])",
        "(1, 2.0)",
        "iter([1, 2])",
        "[np.float32(1), np.int64(2)]",
        "[True, 2]",
    ],
)
def test_numbers_of_every_kind_are_taken(make: Make, answer: str) -> None:
    assert values(
        make(f"import numpy as np, torch\ndef score(prompts, completions):\n    return {answer}\n"), "a", "b"
    ) == [1.0, 2.0]


def test_an_exception_is_reported_with_the_text_that_caused_it(make: Make) -> None:
    reward = make("def score(prompts, completions, **columns):\n    return [1 / len(c) for c in completions]\n")
    completions = [*attempts("fine", "well"), *attempts("", prompt="a prompt", location="data.tsv:7")]
    with pytest.raises(MeristemError) as error:
        reward.score(completions)
    message = str(error.value)
    assert message.startswith("reward my_reward_") and "ZeroDivisionError: division by zero (my_reward_" in message
    assert ".py:2)" in message and "data.tsv:7" in message and "text ''" in message and "prompt 'a prompt'" in message


@pytest.mark.parametrize(
    ("answer", "expected_message"),
    [
        ("[float('nan') if 'bad' in c else 1.0 for c in completions]", "nan is not a finite number"),
        ("[float('inf') if 'bad' in c else 1.0 for c in completions]", "inf is not a finite number"),
        ("['high' if 'bad' in c else 1.0 for c in completions]", "'high' is not a finite number"),
        ("[None if 'bad' in c else 1.0 for c in completions]", "None is not a finite number"),
        ("['1' if 'bad' in c else 1.0 for c in completions]", "'1' is not a finite number"),
        ("[10 ** 400 if 'bad' in c else 1.0 for c in completions]", "is not a finite number"),
        ("[1.0 for c in completions if 'bad' not in c]", "expected 1 numbers, one for each text, got 0"),
    ],
)
def test_a_wrong_value_is_reported_with_its_text(make: Make, answer: str, expected_message: str) -> None:
    reward = make(f"def score(prompts, completions, **columns):\n    return {answer}\n")
    assert values(reward, "good", "fine") == [1.0, 1.0]
    message = error_message(reward, "good", "a bad one", prompt="p")
    assert expected_message in message and "text 'a bad one'" in message


def test_an_answer_that_is_no_list(make: Make) -> None:
    assert "expected a list of 1 numbers, got float" in error_message(
        make("def score(prompts, completions): return 0.5\n"), "a"
    )
    assert "got NoneType" in error_message(make("def score(prompts, completions): pass\n"), "a")


def test_a_fault_that_only_many_texts_show(make: Make) -> None:
    reward = make("def score(prompts, completions):\n    assert len(completions) < 2, 'too many'\n    return [1.0]\n")
    assert (
        "too many" in (message := error_message(reward, "a", "b"))
        and "for 2 texts together and for none of them alone" in message
    )


@given(st.text())
def test_any_text_arrives_as_it_is(text: str) -> None:
    rewards = build_combined_reward({"name": "function", "call": "example_rewards:echoed"})
    assert values(rewards, text) == [float(len(text))]


# ------------------------------------------------------------ functions that are not there


@pytest.mark.parametrize(
    ("call", "expected_message"),
    [
        ("no_such_module_here:f", "no module no_such_module_here; no_such_module_here.py would be read from"),
        ("json:load_", "json has no function 'load_', did you mean load?"),
        ("json:__doc__", "json has no function '__doc__'"),
        ("os:getcwd", "its signature has no prompts; it is called as f(prompts, completions, **columns)"),
    ],
)
def test_a_function_that_is_not_there(
    call: str, expected_message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(MeristemError) as error:
        build_combined_reward({"name": "function", "call": call})
    assert f"reward {call}: {expected_message}" in str(error.value)


def test_a_module_that_cannot_be_imported_says_where(make: Make) -> None:
    with pytest.raises(MeristemError, match=r"cannot be imported: name 'wrong' is not defined \(my_reward_\d+\.py:2\)"):
        make("x = 1\nwrong\n")
    with pytest.raises(MeristemError, match=r"needs not_there_either, which is not installed"):
        make("import not_there_either\n")


@pytest.mark.parametrize("call", ["", "module", "a.b", "module:", ":f", "os; f:g"])
def test_a_name_that_is_no_function(call: str) -> None:
    with pytest.raises(RecipeError, match=r"reward\.0\.call"):
        parse_reward_specs({"name": "function", "call": call})
