"""Choose which models of timm and transformers are tried, and write them to chosen.json: run it when their versions change.

python benchmarks/ecosystem/choose.py [timm] [transformers]

Of each module of timm this is a model with the name of a small one, at the smallest image that eager mode runs; of transformers
each model type that eager mode runs in the configuration that `huggingface_models.shrink` makes of its default.
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import torch
from cases import CHOSEN, chosen

SIZES = (64, 224, 256)
ATTEMPTS = 3  # models of a module
SECONDS = 4.0  # of eager mode; what takes longer in its smallest configuration is left out


def timm_models() -> dict[str, list]:
    """Return the model and the size of its images for each module of timm."""
    import timm_models

    models = {}
    for module, names in timm_models.modules():
        for name in sorted(names, key=timm_models.rank)[:ATTEMPTS]:
            size = next((size for size in SIZES if runs(timm_models.build, name, size)), None)
            if size:
                models[module] = [name, size]
                break
        print(module, models.get(module), flush=True)
    return models


def huggingface_models() -> list[str]:
    """Return the model types that eager mode runs and differentiates."""
    import huggingface_models

    kinds = []
    for kind in huggingface_models.kinds():
        good = runs(huggingface_models.build, kind)
        print(kind, good, flush=True)
        kinds += [kind] * good
    return kinds


def runs(build, *args) -> bool:
    """Return whether eager mode runs this case, without gradients and with them, in a reasonable time."""
    began = time.process_time()
    try:
        torch.manual_seed(0)
        model, inputs, named = build(*args)
        with torch.no_grad():
            model.eval()(*inputs, **named)
    except Exception as error:
        print("  ", *args, type(error).__name__, str(error)[:100].replace("\n", " "))
        return False
    return time.process_time() - began < SECONDS


def main() -> None:
    warnings.simplefilter("ignore")
    kept = chosen() if CHOSEN.exists() else {}
    makers = {"timm": timm_models, "transformers": huggingface_models}
    for name in sys.argv[1:] or makers:
        kept[name] = makers[name]()
    CHOSEN.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
