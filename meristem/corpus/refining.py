"""A corpus of files refined once and kept in parts: a stopped pass goes on, and files that come later are added.

Which files came when is written down before they are read, so that everything else follows from it: the parts, their
limits and what is in them are the same however often the pass was stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from meristem.corpus.account import Account
from meristem.corpus.batches import Batch
from meristem.corpus.cache_folder import cache as cache
from meristem.corpus.growing import digest_of
from meristem.corpus.parts import (
    Part,
    Record,
    Rows,
    Writing,
    discard,
    documents,
    finished,
    load,
    named,
    save,
    sole,
)
from meristem.corpus.pieces import Piece, plan, plan_held_out
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sieve import Sieve
from meristem.corpus.source_kinds import Aligned, File, Source
from meristem.corpus.sources import fingerprint, held_out_keys, keys, resolve, survey
from meristem.errors import MeristemError

PART = 64 << 20
"""Bytes of input after which a part ends, once the piece at hand is over; a larger piece is cut at twice as many."""

Work = Callable[[list[Piece]], Iterator[tuple[Piece, Batch]]]
"""Pieces worked on, in processes or here: their batches in order."""

Key = list[str | int | None]


class Turns(Record):
    """Which files came when; each time that new ones are found is a turn."""

    times: int
    """How often everything was refined anew, because a file had changed or gone."""
    files: list[list[Key]]

    @property
    def origin(self) -> str:
        """Which refining this is: the same as long as files are only added."""
        return fingerprint(self.times, self.files[0])[:16]

    @property
    def state(self) -> str:
        """How far it has grown: the number of turns, and a digest of what they read."""
        return f"{len(self.files)}-{fingerprint(self.files)[:8]}"


@dataclass
class Refined:
    """A refined corpus: complete, in parts."""

    folder: Path
    turns: Turns
    parts: list[Part] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What a person should know: files that had changed, parts that were damaged."""

    @property
    def account(self) -> Account:
        """What became of everything that was read; the splits are still to come."""
        whole = Account()
        for note in self.notes:
            whole.warn(note)
        for part in self.parts:
            whole.add(Account.of(part.account))
        return whole

    @property
    def kept(self) -> int:
        """Documents of the source in it, without validation and test data of their own."""
        return sum(part.kept - part.held_out for part in self.parts)


def home(settings: CorpusSettings) -> Path | None:
    """Where a refined corpus is kept; nowhere if nothing asks for refining, or if it does not come from files."""
    if not settings.refined:
        return None
    found = survey(settings)
    if not of_files(found.everything):
        return None
    places = [
        [_absolute(source), target if target is None or not Path(target).is_file() else _absolute(target)]
        for source, target in zip(settings.sources, settings.targets, strict=True)
    ]
    plain = settings.deciding()
    for name in ("validation", "test", "target"):  # splits are drawn when the parts are read; targets are named above
        plain.pop(name, None)
    return cache() / "corpora" / fingerprint(plain, places, *held_out_keys(found))[:20]


def of_files(sources: Iterable[Source]) -> bool:
    """Whether all of a corpus can be looked at again."""
    return all(isinstance(source, File | Aligned) for source in sources)


def _absolute(place: str) -> str:
    """A path as it is from everywhere."""
    return str(Path(place).expanduser().absolute())


def turns(settings: CorpusSettings, folder: Path) -> tuple[Turns, list[str]]:
    """Which files there are and when they came, brought up to date, and what is to be said about it."""
    with sole(folder):
        return _up_to_date(keys(resolve(settings)), folder)


def _up_to_date(now: list[Key], folder: Path) -> tuple[Turns, list[str]]:
    path = folder / "turns.json"
    if not path.exists():
        return _saved(Turns(times=0, files=[now]), path), []
    try:
        old = Turns.model_validate(load(path))
    except (MeristemError, ValueError):
        return _saved(Turns(times=0, files=[now]), path), [f"{path}: damaged; the corpus is refined anew"]
    known = {tuple(one): one for files in old.files for one in files}
    gone = [known[one] for one in known.keys() - set(map(tuple, now))]
    if gone:
        gone.sort(key=str)
        more = f" and {len(gone) - 1:,} others" if len(gone) > 1 else ""
        note = f"{gone[0][1]}{more}: changed or gone since the corpus was refined, so that all of it is refined anew"
        return _saved(Turns(times=old.times + 1, files=[now]), path), [note]
    came = [one for one in now if tuple(one) not in known]
    return (_saved(Turns(times=old.times, files=[*old.files, came]), path) if came else old), []


def _saved(made: Turns, path: Path) -> Turns:
    save(path, made.model_dump())
    return made


def refine(
    settings: CorpusSettings,
    folder: Path,
    work: Work,
    *,
    verify: bool = True,
    progress: Callable[[Account], None] | None = None,
) -> Refined:
    """Bring a refined corpus up to date: what is there and whole is kept, all else is made now."""
    sources = resolve(settings)
    with sole(folder):
        made, notes = _up_to_date(keys(sources), folder)
        refined = Refined(folder, made, notes=notes)
        refined.parts, damage = finished(folder, made.origin, verify=verify)
        if not damage and not _complete(refined, settings):
            damage = _cut_to_whole_index(refined)
        if damage:
            notes.append(f"{damage}; made again from there")
        if damage or not _complete(refined, settings):
            discard(folder, len(refined.parts))
            _go_on(refined, sources, settings, work, progress)
    return refined


def _complete(refined: Refined, settings: CorpusSettings) -> bool:
    if not refined.parts:
        return False
    last = refined.parts[-1]
    return last.last and (last.turn == len(refined.turns.files) - 1 or refined.kept == settings.most_documents)


def _cut_to_whole_index(refined: Refined) -> str:
    """Going on needs the index as every part left it; parts from the first where it is not are given up, and named."""
    widths = {"digests": 16, "signatures": 252, "numbers": 8}
    for number, part in enumerate(refined.parts):
        for name, rows in part.index.items():
            path, width = refined.folder / "index" / name, widths[name]
            if not path.is_file() or digest_of(path, rows.start * width, rows.stop * width) != rows.sha256:
                del refined.parts[number:]
                return f"{path}: damaged where {named(refined.folder, number, 'jsonl')} was written"
    return ""


def _go_on(
    refined: Refined,
    sources: Sequence[Source],
    settings: CorpusSettings,
    work: Work,
    progress: Callable[[Account], None] | None,
) -> None:
    last = refined.parts[-1] if refined.parts else None
    counts = {name: rows.stop for name, rows in last.index.items()} if last else {}
    named_by = dict(zip(map(tuple, keys(sources)), sources, strict=True))
    held_out = survey(settings).held_out
    with Sieve(
        settings, refined.folder / "index", counts=counts, kept=refined.kept, passed=last.passed if last else 0
    ) as sieve:
        if held_out:
            sieve.know(documents(refined.folder, refined.parts))
        first = 0 if last is None else last.turn + last.last
        for turn in range(first, len(refined.turns.files)):
            if sieve.full:
                return
            going_on = last is not None and not last.last and last.turn == turn
            begun = (last.piece, last.batches) if last and going_on else (0, 0)
            files = [named_by[tuple(wanted)] for wanted in refined.turns.files[turn]]
            apart = [] if turn else list(plan_held_out(held_out, settings))
            Turn(refined, turn, [*apart, *plan(files, settings)], sieve, progress).run(work, *begun)


class Turn:
    """The parts of one turn in the making."""

    def __init__(
        self, refined: Refined, turn: int, pieces: list[Piece], sieve: Sieve, progress: Callable[[Account], None] | None
    ) -> None:
        self._refined, self._turn, self._pieces, self._sieve = refined, turn, pieces, sieve
        self._progress = progress
        self._total = refined.account

    def run(self, work: Work, piece: int, skip: int) -> None:
        """Make all parts from a piece on, some batches of which have been taken before."""
        self._begin(piece)
        at, taken = piece, 0
        try:
            for worked, batch in work(self._pieces[piece:]):
                while self._pieces[at] is not worked:
                    at, taken = at + 1, 0
                    if self._sieve.account.bytes >= PART:
                        self._finish(at, 0)
                        self._begin(at)
                taken += 1
                if at == piece and taken <= skip:
                    continue
                chosen = self._sieve.choose(worked, batch)
                self._held_out += len(chosen) if worked.split else 0
                self._writing.add(chosen)
                self._tell()
                if self._sieve.full:
                    break
                if self._sieve.account.bytes >= 2 * PART:
                    self._finish(at, taken)
                    self._begin(at)
            self._finish(len(self._pieces), 0, last=True)
        except BaseException:
            self._writing.abandon()
            raise

    def _begin(self, piece: int) -> None:
        self._first, self._held_out = piece, 0
        self._starts = {name: len(file) for name, file in self._sieve.files.items()}
        self._writing = Writing(self._refined.folder, len(self._refined.parts))

    def _finish(self, piece: int, batches: int, *, last: bool = False) -> None:
        """The index first, then the documents, then their description: it is the last file to appear."""
        covered = self._pieces[self._first : piece + (batches > 0)]
        index = {}
        for name, file in self._sieve.files.items():
            file.flush()
            index[name] = Rows(start=self._starts[name], stop=len(file), sha256=file.digest(self._starts[name]))
        account = self._sieve.account.take()
        part = Part(
            origin=self._refined.turns.origin,
            number=len(self._refined.parts),
            turn=self._turn,
            covers=[[one.source.name, one.start, one.stop] for one in covered],
            files=keys(dict.fromkeys(one.source for one in covered)),
            piece=piece,
            batches=batches,
            passed=self._sieve.passed,
            last=last,
            size=self._writing.size,
            sha256=self._writing.finish(),
            index=index,
            account=account.plain(),
            held_out=self._held_out,
        )
        save(named(self._refined.folder, part.number, "json"), part.model_dump())
        self._refined.parts.append(part)
        self._total.add(account)

    def _tell(self) -> None:
        if self._progress is not None:
            now = self._sieve.account
            self._progress(Account(bytes=self._total.bytes + now.bytes, read=self._total.read + now.read))
