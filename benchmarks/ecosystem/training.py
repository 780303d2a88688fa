"""Whole loops of training by other libraries around a compiled model: what is left of the parameters is compared."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial

import accelerate
import lightning
import torch
import torch.nn.functional as F
import transformers
from cases import Case, Collection
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

collection = Collection("lightning")


def cases() -> list[Case]:
    return collection.cases


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))


def batches() -> DataLoader:
    torch.manual_seed(1)
    return DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 1)), batch_size=4)


def parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: each.detach().clone() for name, each in model.named_parameters()}


class Regression(lightning.LightningModule):
    """A model whose network is compiled."""

    def __init__(self, compile: Callable):
        super().__init__()
        self.inner = network()
        self.network = compile(self.inner)

    def training_step(self, batch, index):
        loss = F.mse_loss(self.network(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.inner.parameters(), lr=0.01)


QUIET = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


def trainer(compile: Callable, **options) -> dict[str, torch.Tensor]:
    model = Regression(compile)
    lightning.Trainer(max_epochs=2, **QUIET, **options).fit(model, batches())
    return parameters(model.inner)


def whole_trainer(compile: Callable) -> dict[str, torch.Tensor]:
    """Compile the LightningModule itself."""
    model = Regression(lambda module: module)
    lightning.Trainer(max_epochs=2, **QUIET).fit(compile(model), batches())
    return parameters(model.inner)


def fabric(compile: Callable) -> dict[str, torch.Tensor]:
    fabric, inner = lightning.Fabric(accelerator="cpu"), network()
    model, optimizer = fabric.setup(compile(inner), torch.optim.SGD(inner.parameters(), lr=0.1))
    for x, y in fabric.setup_dataloaders(batches()):
        optimizer.zero_grad()
        fabric.backward(F.mse_loss(model(x), y))
        optimizer.step()
    return parameters(inner)


collection.loop("Trainer", trainer)
collection.loop("Trainer, accumulated gradients", lambda compile: trainer(compile, accumulate_grad_batches=2, gradient_clip_val=0.5))
collection.loop("Trainer, bf16", lambda compile: trainer(compile, precision="bf16-mixed"))
collection.loop("Trainer, the whole module", whole_trainer)
collection.loop("Fabric", fabric)


def accelerated(compile: Callable, precision: str = "no", steps: int = 1) -> dict[str, torch.Tensor]:
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    helper = accelerate.Accelerator(cpu=True, mixed_precision=precision, gradient_accumulation_steps=steps)
    inner = network()
    model, optimizer, data = helper.prepare(compile(inner), torch.optim.AdamW(inner.parameters(), lr=0.01), batches())
    for x, y in data:
        with helper.accumulate(model):
            loss = F.mse_loss(model(x).float(), y)
            helper.backward(loss)
            helper.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return parameters(inner)


collection.loop("prepare", accelerated, library="accelerate")
collection.loop("prepare, bf16", lambda compile: accelerated(compile, "bf16"), library="accelerate")
collection.loop("prepare, accumulated gradients", lambda compile: accelerated(compile, steps=2), library="accelerate")

CONFIG = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 50, "n_positions": 32}


class Texts(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + 8) % 50
        return {"input_ids": tokens, "labels": tokens}


def huggingface(compile: Callable, **options) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**CONFIG))
    with tempfile.TemporaryDirectory() as folder:
        options = {"optim": "sgd", "learning_rate": 0.1} | options  # Adam makes much of gradients that are rounding errors
        arguments = transformers.TrainingArguments(
            folder, max_steps=3, per_device_train_batch_size=4, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, **options
        )
        transformers.Trainer(compile(model), arguments, train_dataset=Texts()).train()
    return parameters(model)


collection.loop("Trainer", huggingface, library="transformers")
collection.loop("Trainer, bf16", lambda compile: huggingface(compile, bf16=True), library="transformers")
collection.loop("Trainer, checkpointed", lambda compile: huggingface(compile, gradient_checkpointing=True), library="transformers")


def generator(name: str, **options) -> tuple[nn.Module, tuple, dict]:
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    sizes |= {"num_key_value_heads": 1, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
    model = getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(**sizes))
    return model, (torch.randint(2, 50, (2, 5)),), {"max_new_tokens": 10, **options}


GENERATING = {"library": "transformers", "modes": ("eval",), "method": "generate"}
for name in ("Llama", "Qwen2", "Mistral", "Gemma"):
    collection.add(f"generate, {name}", **GENERATING)(partial(generator, name))
collection.add("generate, static cache", **GENERATING)(partial(generator, "Llama", cache_implementation="static"))
