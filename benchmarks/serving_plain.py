"""The baseline server: the same weights behind transformers' pipelines in plain FastAPI routes.

    python benchmarks/serving_plain.py FOLDER PORT

FOLDER has `reviews`, `bert` and `gpt2` as exported by `meristem export`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline


class Text(BaseModel):
    """Request body with a text."""

    text: str


class Prompt(BaseModel):
    """Request body with a prompt."""

    prompt: str
    max_tokens: int


def application(folder: Path) -> FastAPI:
    """The app with three routes; FastAPI runs each request in a thread."""
    app = FastAPI()
    classifier = pipeline("text-classification", str(folder / "reviews"))
    filler = pipeline("fill-mask", str(folder / "bert"))
    tokenizer = AutoTokenizer.from_pretrained(folder / "gpt2")
    model = AutoModelForCausalLM.from_pretrained(folder / "gpt2").eval()

    @app.post("/classify")
    def classify(request: Text) -> Any:
        return classifier(request.text)

    @app.post("/fill")
    def fill(request: Text) -> Any:
        return filler(request.text)

    @app.post("/generate")
    def generate(request: Prompt) -> Any:
        inputs = tokenizer(request.prompt, return_tensors="pt")
        with torch.inference_mode():
            generated_ids = model.generate(
                **inputs, max_new_tokens=request.max_tokens, min_new_tokens=request.max_tokens, do_sample=False,
                pad_token_id=0,
            )[0, inputs["input_ids"].shape[1] :]  # fmt: skip
        return {"texts": [{"text": tokenizer.decode(generated_ids), "tokens": generated_ids.tolist()}]}

    @app.get("/health/ready")
    def ready() -> Any:
        return {}

    return app


if __name__ == "__main__":
    uvicorn.run(application(Path(sys.argv[1])), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
