"""The moving picture of the READMEs: a real run is killed, resumes, and ends with the weights of an undisturbed one.

    python -m benchmarks.readme_picture [--work FOLDER]

Trains a tiny recipe twice in the work folder: once undisturbed, once killed with SIGKILL on its way. What the terminal
said is kept there; the picture is drawn from it: docs/pictures/first-run.gif.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image, ImageFont

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs/pictures/first-run.gif"
RECIPE = """\
# tiny.yaml — a GPT-2 of stories from a small simulated world, a minute on two idle cores
corpus:    {source: "builtin:microworld-en?size=1500&seed=1"}
tokenizer: {kind: bpe, vocab_size: 1024}
model:     {family: gpt2, layers: 2, hidden_size: 96, heads: 4, max_length: 64}
objective: clm
train:     {steps: 200, batch_tokens: 2048, learning_rate: 3e-3, optimizer: muon, save_every: 40, evaluate_every: 20}
"""
CHECKSUMS = "sha256sum runs/*/checkpoints/*200/model.safetensors | cut -c 1-20,65-"
KILL_AT = 0.55
"""Share of the steps after which the run is killed."""
SIZE, TERMINAL_WIDTH, LINE_HEIGHT, MARGIN = (1080, 500), 700, 20, 18
ROWS = (SIZE[1] - 2 * MARGIN) // LINE_HEIGHT
COLORS = {
    "background": "#fbfaf7", "panel": "#ffffff", "border": "#dfe3e8", "text": "#1d2939", "dim": "#667085",
    "command": "#1f7a4f", "bad": "#b42318", "line": "#1f7a4f", "point": "#b4531c",
}  # fmt: skip
PROGRESS = re.compile(r"step (\d+)/(\d+)  (validation  )?loss ([\d.]+)")
Transcript = list[str]


# ------------------------------------------------------------ the run


def record(work: Path) -> dict[str, Any]:
    """What the commands said, and the checksums of both runs' weights; what the work folder has is not run again."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "tiny.yaml").write_text(RECIPE, encoding="utf-8")
    path = work / "transcript.json"
    transcript: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    pretrain = ["pretrain", "tiny.yaml", "--out"]
    generate = ["generate", "runs/tiny", "--prompt", "Yesterday", "--max-tokens", "48", "--temperature", "0.5"]
    parts: dict[str, tuple[list[str], float | None]] = {
        "undisturbed": ([*pretrain, "runs/undisturbed"], None),
        "killed": ([*pretrain, "runs/tiny"], KILL_AT),
        "resumed": ([*pretrain, "runs/tiny"], None),
        "generated": (generate, None),
    }
    for name, (words, kill_at) in parts.items():
        if name not in transcript:
            transcript[name] = _run(words, work, kill_at)
            path.write_text(json.dumps(transcript, indent=1), encoding="utf-8")
    transcript["sums"] = {name: _weights_sum(work / "runs" / name) for name in ("undisturbed", "tiny")}
    shown = subprocess.run(["bash", "-c", CHECKSUMS], cwd=work, capture_output=True, text=True, check=True)
    transcript["checksums"] = shown.stdout.splitlines()
    return transcript


def _run(words: Sequence[str], work: Path, kill_at: float | None) -> Transcript:
    """The lines of a meristem command; it is killed when it has taken this share of its steps."""
    environment = {**os.environ, "COLUMNS": "90", "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "meristem", *words]
    process = subprocess.Popen(
        command, cwd=work, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    lines: Transcript = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        found = PROGRESS.search(line)
        if kill_at is not None and found and int(found[1]) >= kill_at * int(found[2]):
            process.send_signal(signal.SIGKILL)
    code = process.wait()
    if code != (0 if kill_at is None else -signal.SIGKILL):
        raise SystemExit("\n".join([f"{' '.join(command)}: exit code {code}", *lines[-5:]]))
    return lines


def _weights_sum(run: Path) -> str:
    """SHA-256 of the weights of a run's last checkpoint."""
    weights = max((run / "checkpoints").glob("step-*/model.safetensors"))
    return hashlib.sha256(weights.read_bytes()).hexdigest()


# ------------------------------------------------------------ its story


def story(transcript: dict[str, Any]) -> list[tuple[str, str, float]]:
    """(kind, text, seconds that it stays the newest line) in the order of the picture."""
    sums = transcript["sums"]
    if len(set(sums.values())) != 1:
        raise SystemExit(f"the resumed run ended with other weights: {sums}")
    pretrain = ("command", "meristem pretrain tiny.yaml", 1.2)
    shown = [pretrain, *_output(transcript["killed"]), ("bad", "Killed", 1.5)]
    shown += [pretrain, *_output(transcript["resumed"])]
    shown += [("command", CHECKSUMS, 1.0)]
    shown += [("text", line, 0.8) for line in transcript["checksums"]]
    shown += [("dim", "the same bits as the run that nobody killed", 2.0)]
    shown += [("command", 'meristem generate runs/tiny --prompt "Yesterday"', 1.2)]
    text = " ".join(" ".join(transcript["generated"]).split())
    return [*shown, ("text", text, 5.0)]


def _output(lines: Transcript) -> list[tuple[str, str, float]]:
    """Lines worth showing, without their ends: what is trained, where it resumed, and every validation."""
    wanted = re.compile(r"^(Training|Resuming)[^;]+|^step \d+/\d+  validation .*?perplexity \S+|^Done[^;]+")
    found = (match[0] for line in lines if (match := wanted.search(line)))
    return [("text", text, 0.3 if "validation" in text else 0.9) for text in found]


# ------------------------------------------------------------ the picture


def draw(transcript: dict[str, Any]) -> None:
    """Write the picture."""
    from matplotlib import font_manager
    from PIL import ImageFont

    monospace = font_manager.findfont("DejaVu Sans Mono")
    font = ImageFont.truetype(monospace, 13)
    shown: list[tuple[str, str]] = []
    curve: list[tuple[int, float, bool]] = []
    kills: list[int] = []
    frames, durations, steps = [], [], _total_steps(transcript)
    columns = int((TERMINAL_WIDTH - 2 * MARGIN) / font.getlength("m"))
    for kind, text, seconds in story(transcript):
        _follow(text, curve)
        if kind == "bad" and curve:
            kills.append(curve[-1][0])
        shown += [(kind, part) for part in _wrapped(("$ " if kind == "command" else "") + text, columns)]
        frames.append(_frame(shown[-ROWS:], curve, kills, steps, font))
        durations.append(int(1000 * seconds))
    palette = frames[-1].quantize(48)
    first, *rest = [frame.quantize(palette=palette, dither=0) for frame in frames]
    first.save(PICTURE, save_all=True, append_images=rest, duration=durations, loop=0, optimize=True)
    print(f"{PICTURE.relative_to(ROOT)}: {len(frames)} frames, {PICTURE.stat().st_size / 1000:.0f} kB")


def _total_steps(transcript: dict[str, Any]) -> int:
    return next(int(found[2]) for line in transcript["killed"] if (found := PROGRESS.search(line)))


def _follow(text: str, curve: list[tuple[int, float, bool]]) -> None:
    found = PROGRESS.search(text)
    if found:
        while curve and curve[-1][0] >= int(found[1]):  # the resumed run repeats what was after its checkpoint
            curve.pop()
        curve.append((int(found[1]), float(found[4]), bool(found[3])))


def _wrapped(text: str, columns: int) -> list[str]:
    """Lines of at most so many characters, broken at spaces."""
    lines = [""]
    for word in re.findall(r"\S+\s*", text):
        if len(lines[-1]) + len(word.rstrip()) > columns and lines[-1]:
            lines.append("")
        lines[-1] += word
    return lines


def _frame(
    lines: Sequence[tuple[str, str]],
    curve: Sequence[tuple[int, float, bool]],
    kills: Sequence[int],
    steps: int,
    font: ImageFont.FreeTypeFont,
) -> Image.Image:
    """One frame: the terminal on the left, the validation loss on the right."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", SIZE, COLORS["background"])
    pen = ImageDraw.Draw(image)
    for row, (kind, text) in enumerate(lines):
        pen.text((MARGIN, MARGIN + row * LINE_HEIGHT), text, fill=COLORS[kind], font=font)
    left, top, right, bottom = TERMINAL_WIDTH + 8, 60, SIZE[0] - MARGIN, SIZE[1] - 60
    pen.rounded_rectangle((left, top, right, bottom), 8, fill=COLORS["panel"], outline=COLORS["border"])
    pen.text((left + 14, top + 10), "validation loss", fill=COLORS["text"], font=font)
    x0, x1, y0, y1 = left + 44, right - 20, top + 46, bottom - 40
    for loss in range(2, 8, 2):
        y = y1 - (y1 - y0) * (loss - 1) / 6
        pen.line((x0, y, x1, y), fill=COLORS["border"])
        pen.text((left + 18, y - 8), str(loss), fill=COLORS["dim"], font=font)
    pen.text((x1 - 8 * len(f"step {steps}"), y1 + 12), f"step {steps}", fill=COLORS["dim"], font=font)
    points = [(x0 + (x1 - x0) * step / steps, y1 - (y1 - y0) * (min(loss, 7) - 1) / 6) for step, loss, _ in curve]
    for step in kills:
        x = x0 + (x1 - x0) * step / steps
        pen.line((x, y0, x, y1), fill=COLORS["bad"], width=2)
        pen.text((min(x + 6, x1 - 60), y0), "kill -9", fill=COLORS["bad"], font=font)
    if len(points) > 1:
        pen.line(points, fill=COLORS["line"], width=3, joint="curve")
    for x, y in points:
        pen.ellipse((x - 3, y - 3, x + 3, y + 3), fill=COLORS["point"])
    return image


def main() -> None:
    """Run, or read what ran, and draw."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.readme_picture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--work", type=Path, default=Path("runs/readme-picture"), help="folder of the runs")
    draw(record(parser.parse_args().work.resolve()))


if __name__ == "__main__":
    main()
