"""transformers, held back: models with heads and labels, and options that the table does not have, on batches of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import huggingface_models as table
import torch
import transformers
import trial
from cases import Case

BATCHES = (2, 3, 2, 4)
CLASSES, TOKENS = 5, 10


def tokens(batch: int, length: int = TOKENS) -> torch.Tensor:
    return torch.randint(3, table.VOCABULARY, (batch, length))


def text(batch: int) -> dict[str, torch.Tensor]:
    return {"input_ids": tokens(batch)}


def padded(batch: int) -> dict[str, torch.Tensor]:
    """Return texts of several lengths, padded on the right."""
    lengths = torch.randint(4, TOKENS + 1, (batch, 1))
    mask = (torch.arange(TOKENS) < lengths).long()
    return {"input_ids": tokens(batch) * mask, "attention_mask": mask}


def left_padded(batch: int) -> dict[str, torch.Tensor]:
    return {name: each.flip(1) for name, each in padded(batch).items()}


def causal(batch: int) -> dict[str, torch.Tensor]:
    inputs = padded(batch)
    return inputs | {"labels": inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)}


def masked(batch: int) -> dict[str, torch.Tensor]:
    inputs = padded(batch)
    return inputs | {"labels": torch.where(torch.rand(batch, TOKENS) < 0.3, inputs["input_ids"], -100)}


def classes(batch: int) -> dict[str, torch.Tensor]:
    return padded(batch) | {"labels": torch.randint(0, CLASSES, (batch,))}


def several_classes(batch: int) -> dict[str, torch.Tensor]:
    return padded(batch) | {"labels": torch.randint(0, 2, (batch, CLASSES)).float()}


def numbers(batch: int) -> dict[str, torch.Tensor]:
    return padded(batch) | {"labels": torch.randn(batch)}


def tags(batch: int) -> dict[str, torch.Tensor]:
    return padded(batch) | {"labels": torch.randint(0, CLASSES, (batch, TOKENS))}


def spans(batch: int) -> dict[str, torch.Tensor]:
    ends = torch.randint(0, TOKENS, (2, batch)).sort(0).values
    return padded(batch) | {"start_positions": ends[0], "end_positions": ends[1]}


def choices(batch: int) -> dict[str, torch.Tensor]:
    return {"input_ids": tokens(batch * 3).view(batch, 3, TOKENS), "labels": torch.randint(0, 3, (batch,))}


def translation(batch: int) -> dict[str, torch.Tensor]:
    return padded(batch) | {"labels": tokens(batch, 6)}


def embedded(batch: int) -> dict[str, torch.Tensor]:
    return {"inputs_embeds": torch.randn(batch, TOKENS, 32), "labels": tokens(batch)}


def positioned(batch: int) -> dict[str, torch.Tensor]:
    return text(batch) | {"position_ids": torch.arange(TOKENS).flip(0).expand(batch, TOKENS)}


def images(batch: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(batch, 3, table.IMAGE, table.IMAGE)}


def labelled_images(batch: int) -> dict[str, torch.Tensor]:
    return images(batch) | {"labels": torch.randint(0, CLASSES, (batch,))}


def maps(batch: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(batch, 3, 64, 64), "labels": torch.randint(0, CLASSES, (batch, 64, 64))}


def pairs(batch: int) -> dict[str, Any]:
    return padded(batch) | images(batch) | {"return_loss": True}


def sound(batch: int) -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(batch, 2000), "labels": torch.randint(1, 20, (batch, 3))}


def spoken_classes(batch: int) -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(batch, 2000), "labels": torch.randint(0, CLASSES, (batch,))}


ROPE = {"rope_theta": 10000.0}
HEADS: dict[str, tuple[str, str, Callable, dict[str, Any]]] = {  # type, class of the model, inputs, options of the configuration
    "albert, sentence order and shared layers": ("albert", "AutoModelForMaskedLM", masked, {"inner_group_num": 2}),
    "bert, masked words": ("bert", "AutoModelForMaskedLM", masked, {}),
    "bert, gelu_new and no dropout": ("bert", "AutoModelForSequenceClassification", classes, {"hidden_act": "gelu_new", "hidden_dropout_prob": 0.0}),
    "bert, several labels": ("bert", "AutoModelForSequenceClassification", several_classes, {"problem_type": "multi_label_classification"}),
    "bert as a decoder, returns a tuple": ("bert", "AutoModelForCausalLM", causal, {"is_decoder": True, "return_dict": False}),
    "roberta, regression": ("roberta", "AutoModelForSequenceClassification", numbers, {"num_labels": 1}),
    "roberta, choices": ("roberta", "AutoModelForMultipleChoice", choices, {}),
    "camembert, tags": ("camembert", "AutoModelForTokenClassification", tags, {}),
    "distilbert, spans": ("distilbert", "AutoModelForQuestionAnswering", spans, {"num_labels": 2}),
    "electra, all hidden states": ("electra", "AutoModelForTokenClassification", tags, {"output_hidden_states": True}),
    "deberta-v2, spans": ("deberta-v2", "AutoModelForQuestionAnswering", spans, {"num_labels": 2, "pos_att_type": ["p2c", "c2p"]}),
    "xlnet, classes": ("xlnet", "AutoModelForSequenceClassification", classes, {}),
    "gpt2, labels and cache": ("gpt2", "AutoModelForCausalLM", causal, {"use_cache": True}),
    "gpt2, cross attention off, scaled by layer": ("gpt2", "AutoModelForCausalLM", causal, {"scale_attn_by_inverse_layer_idx": True}),
    "gpt2, classes": ("gpt2", "AutoModelForSequenceClassification", classes, {"pad_token_id": 0}),
    "gpt2, eager attention with weights": ("gpt2", "AutoModel", padded, {"output_attentions": True, "_attn_implementation": "eager"}),
    "gpt_neox, no parallel residual": ("gpt_neox", "AutoModelForCausalLM", causal, {"use_parallel_residual": False}),
    "llama, tied, biases": ("llama", "AutoModelForCausalLM", causal, {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    "llama, linear rope": ("llama", "AutoModelForCausalLM", text, {"rope_parameters": ROPE | {"rope_type": "linear", "factor": 2.0}}),
    "llama, dynamic rope": ("llama", "AutoModelForCausalLM", text, {"rope_parameters": ROPE | {"rope_type": "dynamic", "factor": 2.0}}),
    "llama, yarn": ("llama", "AutoModelForCausalLM", text, {"rope_parameters": ROPE | {"rope_type": "yarn", "factor": 4.0}}),
    "llama, embeddings": ("llama", "AutoModelForCausalLM", embedded, {}),
    "llama, positions": ("llama", "AutoModel", positioned, {"_attn_implementation": "eager", "output_attentions": True}),
    "llama, left padding": ("llama", "AutoModelForSequenceClassification", left_padded, {"pad_token_id": 0}),
    "mistral, sliding window, relu": ("mistral", "AutoModelForCausalLM", causal, {"sliding_window": 4, "hidden_act": "relu"}),
    "mixtral, auxiliary loss": ("mixtral", "AutoModelForCausalLM", causal, {"output_router_logits": True}),
    "qwen2, sliding window": ("qwen2", "AutoModelForCausalLM", causal, {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    "qwen3_moe, normalised routes": ("qwen3_moe", "AutoModelForCausalLM", causal, {"norm_topk_prob": True, "output_router_logits": True}),
    "gemma2, eager attention, soft caps": ("gemma2", "AutoModelForCausalLM", causal, {"_attn_implementation": "eager", "sliding_window": 4}),
    "phi3, partial rotary": ("phi3", "AutoModelForCausalLM", causal, {"pad_token_id": 0}),
    "olmo2": ("olmo2", "AutoModelForCausalLM", causal, {"pad_token_id": 0}),
    "falcon, alibi": ("falcon", "AutoModelForCausalLM", causal, {"alibi": True, "new_decoder_architecture": False}),
    "bloom, labels": ("bloom", "AutoModelForCausalLM", causal, {"slow_but_exact": True}),
    "t5, gated gelu": ("t5", "AutoModelForSeq2SeqLM", translation, {"feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0}),
    "bart, labels": ("bart", "AutoModelForSeq2SeqLM", translation, {"encoder_layerdrop": 0.0, "activation_function": "relu"}),
    "marian, hidden states and attentions": (
        "marian",
        "AutoModelForSeq2SeqLM",
        translation,
        {
            "output_hidden_states": True,
            "output_attentions": True,
            "_attn_implementation": "eager",
            "decoder_start_token_id": 1,
            "decoder_vocab_size": table.VOCABULARY,
        },
    ),
    "vit, classes": ("vit", "AutoModelForImageClassification", labelled_images, {"qkv_bias": False}),
    "vit, masked patches": ("vit_mae", "AutoModelForPreTraining", images, {}),
    "deit, gelu_fast": ("deit", "DeiTForImageClassification", labelled_images, {"hidden_act": "gelu_fast"}),
    "dinov2, swiglu": ("dinov2", "AutoModelForImageClassification", labelled_images, {"use_swiglu_ffn": True}),
    "convnextv2, classes": (
        "convnextv2",
        "AutoModelForImageClassification",
        labelled_images,
        {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]},
    ),
    "resnet, basic layers": ("resnet", "AutoModelForImageClassification", labelled_images, {"layer_type": "basic", "depths": [1, 1, 1, 1]}),
    "segformer, maps": ("segformer", "AutoModelForSemanticSegmentation", maps, {}),
    "clip, contrastive loss": ("clip", "AutoModel", pairs, {}),
    "siglip, contrastive loss": ("siglip", "AutoModel", pairs, {"text_config.projection_size": 32}),
    "wav2vec2, CTC": ("wav2vec2", "AutoModelForCTC", sound, {"ctc_loss_reduction": "mean", "mask_time_prob": 0.0, "layerdrop": 0.0}),
    "hubert, classes": ("hubert", "AutoModelForAudioClassification", spoken_classes, {"mask_time_prob": 0.0, "layerdrop": 0.0}),
    "mamba, labels": ("mamba", "AutoModelForCausalLM", lambda batch: text(batch) | {"labels": tokens(batch)}, {"use_mambapy": False}),
}
CHECKPOINTED = ("gpt2", "llama", "opt", "gpt_neo", "starcoder2")
GENERATIONS = {
    "gpt2, padded": ("gpt2", "AutoModelForCausalLM", {}),
    "opt, repetition penalty": ("opt", "AutoModelForCausalLM", {"repetition_penalty": 1.3}),
    "llama, beams": ("llama", "AutoModelForCausalLM", {"num_beams": 2}),
    "gpt_neox, no repeated pairs": ("gpt_neox", "AutoModelForCausalLM", {"no_repeat_ngram_size": 2, "min_new_tokens": 3}),
    "t5": ("t5", "AutoModelForSeq2SeqLM", {}),
    "bart, beams": ("bart", "AutoModelForSeq2SeqLM", {"num_beams": 2, "forced_eos_token_id": None}),
}


def cases() -> Iterator[Case]:
    for name, (kind, model, inputs, options) in HEADS.items():
        yield Case("transformers", f"{name}, held back", partial(build, kind, model, inputs, options), loss=own_loss, batches=BATCHES)
    for kind in CHECKPOINTED:
        build_case = partial(build, kind, "AutoModelForCausalLM", causal, {"pad_token_id": 0}, checkpointed=True)
        yield Case("transformers", f"{kind}, checkpointed, held back", build_case, modes=("train",), loss=own_loss, batches=BATCHES)
    for name, (kind, model, options) in GENERATIONS.items():
        build_case = partial(generation, kind, model, options)
        yield Case("transformers", f"generate, {name}, held back", build_case, modes=("eval",), method="generate", batches=BATCHES)


def own_loss(out: Any) -> torch.Tensor:
    """Return the loss that the model computed from the labels, the squares of its outputs where it had none."""
    if isinstance(out, tuple):
        return out[0]
    loss = getattr(out, "loss", None)
    return trial.sum_of_squares(out) if loss is None else loss


def configuration(kind: str, options: dict[str, Any]) -> transformers.PreTrainedConfig:
    """Return a small configuration of that type with these options; those of a configuration within it have its name before a dot."""
    config = table.shrink(transformers.AutoConfig.for_model(kind))
    if "num_labels" not in options:
        config.num_labels = CLASSES
    for name, value in options.items():
        inner, _, attribute = name.rpartition(".")
        setattr(getattr(config, inner) if inner else config, attribute, value)
    return config


def build(kind: str, model: str, inputs: Callable, options: dict[str, Any], checkpointed: bool = False) -> tuple[torch.nn.Module, Callable, None]:
    """Return a small model with random weights, and what makes a batch for it."""
    network_class, config = getattr(transformers, model), configuration(kind, options)
    network = network_class.from_config(config) if model.startswith("Auto") else network_class(config)
    if checkpointed:
        network.gradient_checkpointing_enable({"use_reentrant": False})
    return network, lambda batch: ((), inputs(batch)), None


def generation(kind: str, model: str, options: dict[str, Any]) -> tuple[torch.nn.Module, Callable, None]:
    """Return a model and what makes prompts for `generate`, without sampling."""
    config = configuration(kind, {"pad_token_id": 0, "eos_token_id": None, "bos_token_id": 1, "decoder_start_token_id": 1})
    network = getattr(transformers, model).from_config(config)
    return network, lambda batch: ((), left_padded(batch) | {"max_new_tokens": 6, "do_sample": False} | options), None
