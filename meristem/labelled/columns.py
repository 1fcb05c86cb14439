"""Which column is what: the one a setting names, or one with a usual name; else the person is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meristem.errors import MeristemError, did_you_mean
from meristem.labelled.found import Found
from meristem.labelled.settings import DataSettings


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


TEXT = _names(
    "text sentence review content comment tweet utterance document body message query question headline title sms input"
    " 文本 内容 句子 评论"
)
PAIRS = (
    ("text", "text_b"),
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("sentence_a", "sentence_b"),
    ("s1", "s2"),
    ("#1 string", "#2 string"),
    ("query", "document"),
    ("query", "passage"),
    ("query", "title"),
    ("question", "passage"),
    ("question", "answer"),
)
LABEL = _names(
    "label labels gold_label gold class category categories sentiment polarity emotion topic score similarity"
    " similarity_score relatedness_score target is_duplicate quality stars rating intent y 标签 类别"
)
WORDS = _names("words tokens token word form")
TAGS = _names("tags ner_tags ner slots slot_labels tag label labels upos pos_tags pos chunk_tags bio")
INTENT = _names("intent intents intent_label intent_labels label class")
QUESTION = _names("question query question_stem")
PASSAGE = _names("passage context paragraph document article text")
ANSWERS = _names("answers answer answer_text span")
ANSWER_START = _names("answer_start start answer_starts")
CONTEXT = _names("text premise context ctx passage article sent1 startphrase goal sentence story prompt")
CHOICES = _names("choices endings options alternatives candidates")
NUMBERED_CHOICES = _names("choice ending option answer sol alternative hypothesis")
"""Columns that differ by what follows: choice1 and choice2, ending0 to ending3, answerA to answerC."""
RIGHT_CHOICE = _names("label answer answerkey gold correct target right correct_answer")
TURNS = _names("turns dialog dialogue messages conversation conversations utterances history")
ASKED = _names("prompt question instruction input message source text utterance context")
REPLY = _names("target reply response completion answer output replies")
SOURCE = _names("source src article document dialogue text input body content sentence")
TARGET = _names("target targets trg tgt summary highlights tldr output reference references translation headline title")
PROMPT = _names("prompt query question instruction source text input headline title 提示 查询")
PICTURE = _names("picture image file file_name filename image_path path img image_id")
CAPTION = _names("caption captions target text sentence sentences description comment")

USUAL = frozenset(
    (
        *("index", "idx", "id", *TEXT, *LABEL, *WORDS, *TAGS, *INTENT, *QUESTION, *PASSAGE, *ANSWERS, *ANSWER_START),
        *(*CONTEXT, *CHOICES, *RIGHT_CHOICE, *TURNS, *ASKED, *REPLY, *SOURCE, *TARGET, *PICTURE, *CAPTION),
        *(name for pair in PAIRS for name in pair),
        *(f"{stem}{end}" for stem in NUMBERED_CHOICES for end in "01a"),
    )
)
"""Every name that tells a header from data."""


class MissingColumnError(MeristemError):
    """A file lacks the column that a setting names."""

    def __init__(self, message: str, setting: str) -> None:
        super().__init__(message)
        self.setting = setting


@dataclass(frozen=True)
class Columns:
    """The columns of one source, and what the settings say about them."""

    names: tuple[str, ...]
    place: str
    """The source's name."""
    data: DataSettings
    first: tuple[Found, ...] = ()
    """A few rows, where names alone do not tell."""

    def find(self, setting: str, usual: Sequence[str], besides: Sequence[str | None] = ()) -> str | None:
        """The column that a setting names, else the first with a usual name, whatever its case; else nothing."""
        wanted = getattr(self.data, setting)
        if wanted is not None:
            return self.there(wanted, setting)
        known = {name.lower(): name for name in reversed(self.names) if name not in besides}
        return next((known[name] for name in usual if name in known), None)

    def need(self, setting: str, usual: Sequence[str], what: str, besides: Sequence[str | None] = ()) -> str:
        """As `find`, but it must be there."""
        found = self.find(setting, usual, besides)
        if found is None:
            raise self.asked(setting, what)
        return found

    def there(self, wanted: str, setting: str) -> str:
        """A column by its name, which must be right."""
        if wanted not in self.names:
            known = did_you_mean(wanted, self.names)
            shown = known if "known" in known else f"{known} Columns: {', '.join(self.names)}"
            raise MissingColumnError(f"{self.place}: data.{setting}: no column {wanted!r}{shown}", setting)
        return wanted

    def asked(self, setting: str, what: str) -> MeristemError:
        """The question which column something is in."""
        shown = ", ".join(self.names) or "none"
        hint = "; the first line was taken for data (data.header=true: it names the columns)" if self.unnamed else ""
        return MeristemError(
            f"{self.place}: which column holds {what}? Columns: {shown}. Set data.{setting}=COLUMN{hint}"
        )

    @property
    def unnamed(self) -> bool:
        """Whether columns are only numbered."""
        return self.names == tuple(str(number) for number in range(1, len(self.names) + 1))
