"""Column resolution: which column holds the text, the label and so on, by setting or by a common column name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from meristem.config.errors import MeristemError, did_you_mean
from meristem.labelled.rows import RawRow
from meristem.labelled.settings import DataSettings


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


TEXT_COLUMNS = _split_names(
    "text sentence review content comment tweet utterance document body message query question headline title sms input"
    " 文本 内容 句子 评论"
)
PAIR_COLUMNS = (
    *(("text", "text_b"), ("premise", "hypothesis"), ("sentence1", "sentence2"), ("question1", "question2")),
    *(("question", "sentence"), ("text_a", "text_b"), ("text1", "text2"), ("sentence_a", "sentence_b"), ("s1", "s2")),
    *(("#1 string", "#2 string"), ("query", "document"), ("query", "passage"), ("query", "title")),
    *(("question", "passage"), ("question", "answer")),
)
LABEL_COLUMNS = _split_names(
    "label labels gold_label gold class category categories sentiment polarity emotion topic score similarity"
    " similarity_score relatedness_score target is_duplicate quality stars rating intent y 标签 类别"
)
WORD_COLUMNS = _split_names("words tokens token word form")
TAG_COLUMNS = _split_names("tags ner_tags ner slots slot_labels tag label labels upos pos_tags pos chunk_tags bio")
INTENT_COLUMNS = _split_names("intent intents intent_label intent_labels label class")
QUESTION_COLUMNS = _split_names("question query question_stem")
PASSAGE_COLUMNS = _split_names("passage context paragraph document article text")
ANSWER_COLUMNS = _split_names("answers answer answer_text span")
ANSWER_START_COLUMNS = _split_names("answer_start start answer_starts")
CONTEXT_COLUMNS = _split_names("text premise context ctx passage article sent1 startphrase goal sentence story prompt")
CHOICE_LIST_COLUMNS = _split_names("choices endings options alternatives candidates")
CHOICE_COLUMN_STEMS = _split_names("choice ending option answer sol alternative hypothesis")
"""Column names that are followed by a number or letter: choice1 and choice2, ending0 to ending3, answerA to answerC."""
GOLD_CHOICE_COLUMNS = _split_names("label answer answerkey gold correct target right correct_answer")
TURN_COLUMNS = _split_names("turns dialog dialogue messages conversation conversations utterances history")
DIALOGUE_PROMPT_COLUMNS = _split_names("prompt question instruction input message source text utterance context")
REPLY_COLUMNS = _split_names("target reply response completion answer output replies")
SOURCE_COLUMNS = _split_names("source src article document dialogue text input body content sentence")
TARGET_COLUMNS = _split_names(
    "target targets trg tgt summary highlights tldr output reference references translation headline title"
)
PROMPT_COLUMNS = _split_names("prompt query question instruction source text input headline title 提示 查询")
IMAGE_COLUMNS = _split_names("picture image file file_name filename image_path path img image_id")
CAPTION_COLUMNS = _split_names("caption captions target text sentence sentences description comment")

COLUMN_GROUPS = (
    *(TEXT_COLUMNS, LABEL_COLUMNS, WORD_COLUMNS, TAG_COLUMNS, INTENT_COLUMNS, QUESTION_COLUMNS, PASSAGE_COLUMNS),
    *(ANSWER_COLUMNS, ANSWER_START_COLUMNS, CONTEXT_COLUMNS, CHOICE_LIST_COLUMNS, GOLD_CHOICE_COLUMNS, TURN_COLUMNS),
    *(DIALOGUE_PROMPT_COLUMNS, REPLY_COLUMNS, SOURCE_COLUMNS, TARGET_COLUMNS, IMAGE_COLUMNS, CAPTION_COLUMNS),
    *PAIR_COLUMNS,
)
NUMBERED_CHOICES = (f"{stem}{end}" for stem in CHOICE_COLUMN_STEMS for end in "01a")
KNOWN_COLUMN_NAMES = frozenset(chain(("index", "idx", "id"), NUMBERED_CHOICES, *COLUMN_GROUPS))
"""Every name by which a header line is recognised."""


class MissingColumnError(MeristemError):
    """A file has no column of the name given by a setting, or none that can be recognised without one."""

    def __init__(self, problem: str, setting: str, advice: str = "") -> None:
        super().__init__(f"{problem}{advice}")
        self.problem, self.setting = problem, setting

    def for_option(self) -> MeristemError:
        """The same error for commands that take column names with --columns."""
        return MeristemError(f"{self.problem.rstrip('.')}. Name the column with --columns {self.setting}=COLUMN")


@dataclass(frozen=True)
class ColumnResolver:
    """Finds columns of one source by the data settings or by their common names."""

    names: tuple[str, ...]
    source_name: str
    """Name of the source, for messages."""
    settings: DataSettings
    sample_rows: tuple[RawRow, ...] = ()
    """The first rows, for sources whose column names are not informative."""

    def find(self, setting: str, candidates: Sequence[str], exclude: Sequence[str | None] = ()) -> str | None:
        """The column named by a setting, else the first of `candidates` that exists (case-insensitive), else None."""
        column = getattr(self.settings, setting)
        if column is not None:
            return self.check_name(column, setting)
        known = {name.lower(): name for name in reversed(self.names) if name not in exclude}
        return next((known[name] for name in candidates if name in known), None)

    def require(
        self, setting: str, candidates: Sequence[str], description: str, exclude: Sequence[str | None] = ()
    ) -> str:
        """As `find`, but raises if there is no such column."""
        column = self.find(setting, candidates, exclude)
        if column is None:
            raise self.missing_column_error(setting, description)
        return column

    def check_name(self, column: str, setting: str) -> str:
        """The column name itself; raises MissingColumnError if there is no such column."""
        if column not in self.names:
            suggestion = did_you_mean(column, self.names)
            hint = suggestion if "known" in suggestion else f"{suggestion} Columns: {', '.join(self.names)}"
            raise MissingColumnError(f"{self.source_name}: data.{setting}: no column {column!r}{hint}", setting)
        return column

    def missing_column_error(self, setting: str, description: str) -> MissingColumnError:
        """The error for a column that was not found: lists the columns and names the setting."""
        listing = ", ".join(self.names) or "none"
        hint = "; the first line was read as data (set data.header=true if it holds the column names)"
        hint = hint if self.has_numbered_names else ""
        problem = f"{self.source_name}: which column holds {description}? Columns: {listing}."
        return MissingColumnError(problem, setting, f" Set data.{setting}=COLUMN{hint}")

    @property
    def has_numbered_names(self) -> bool:
        """Whether the file has no header, so that columns are named 1, 2, 3, …"""
        return self.names == tuple(str(number) for number in range(1, len(self.names) + 1))
