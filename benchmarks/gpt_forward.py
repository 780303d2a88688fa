"""A warm forward of the 6-layer GPT."""

from __future__ import annotations

from harness import Report, interleaved, span
from subjects import six_layers, split, subjects


def main() -> None:
    model, tokens = six_layers()
    there, absent = split(subjects(model, tokens), tokens)
    timings = interleaved(there, rounds=15, what="GPT forward")
    rows = [(t.name, span(t.median), span(t.minimum), f"{t.ratio:.2f}x") for t in timings]
    rows += [(name, said, "", "") for name, said in absent.items()]
    figures = {t.name: {"median": t.median, "minimum": t.minimum, "ratio": t.ratio} for t in timings}
    how = "6 layers, d=384, batch 4 x 256, vocabulary 8192, float32, no gradients. 15 rounds; ratios to eager within a round."
    Report("gpt_forward", "A warm forward of the 6-layer GPT", how, ("", "median", "minimum", "beside eager"), rows, figures).write()


if __name__ == "__main__":
    main()
