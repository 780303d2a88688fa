"""transformers: one small random model of each type that eager mode runs so, forward and training."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from cases import Case, chosen
from transformers import AutoConfig, AutoModel, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

VOCABULARY, IMAGE, TOKENS = 99, 32, 12
IMAGES = {"hgnet_v2": 64, "textnet": 64}  # 32 pixels end as one, of which batch norm over two images keeps the sign of a difference alone
SIZES = {  # what attributes of a configuration are set to, by what their names contain, first match first
    **dict.fromkeys(("vocab_size", "vocab_size_or_config_json_file", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_encoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_blocks", "depth", "e_layers", "d_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "n_head_kv"), 2),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "hidden_dim", "embedding_size", "projection_dim", "model_dim"), 32),
    **dict.fromkeys(("head_dim", "d_kv", "attention_head_size", "qk_nope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "hidden_size_per_layer_input"), 8),
    **dict.fromkeys(
        ("intermediate_size", "ffn_dim", "d_ff", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim", "d_inner", "moe_intermediate_size"), 64
    ),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_k"), 2),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_source_positions", "max_target_positions", "n_ctx"), 128),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("mamba_d_ssm", "moe_shared_expert_intermediate_size"), 64),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "mamba_head_dim"), 8),
    **dict.fromkeys(("mamba_d_state", "ssm_state_size", "mamba_chunk_size"), 16),
    "image_size": IMAGE,
    "patch_size": 8,
}
DEPTH = 2  # layers of each stage of an encoder of images


def cases() -> Iterator[Case]:
    for kind in chosen()["transformers"]:
        yield Case("transformers", kind, partial(build, kind))


def kinds() -> list[str]:
    """Return every model type that has a plain model."""
    return sorted(MODEL_MAPPING_NAMES)


def build(kind: str) -> tuple[torch.nn.Module, tuple, dict[str, Any]]:
    """Return a small model of that type with random weights, and inputs for it."""
    config = shrink(AutoConfig.for_model(kind))
    model = AutoModel.from_config(config)
    return model, (), inputs(model, config)


def shrink(config: PreTrainedConfig) -> PreTrainedConfig:
    """Set the sizes in a configuration, and in those within it, to small ones; tokens with a meaning get small numbers."""
    for name, value in list(vars(config).items()):
        if isinstance(value, PreTrainedConfig):
            shrink(value)
        elif type(value) is int and name.endswith("_token_id"):
            setattr(config, name, value % VOCABULARY)
        elif type(value) is int and value > 0 and name in SIZES:
            setattr(config, name, min(value, SIZES[name]))
        elif name == "image_size" and isinstance(value, list | tuple):
            setattr(config, name, [IMAGES.get(config.model_type, IMAGE)] * len(value))
        elif name == "depths" and isinstance(value, list | tuple):
            setattr(config, name, [min(depth, DEPTH) for depth in value])
        elif name == "layer_types" and isinstance(value, list):
            setattr(config, name, value[:2])
        elif name == "layers_block_type" and isinstance(value, list):
            setattr(config, name, value[: max(map(value.index, value)) + 1])
    return config


def inputs(model: torch.nn.Module, config: PreTrainedConfig) -> dict[str, torch.Tensor]:
    """Return what the model's main input is, in batches of two; encoders with a decoder get tokens for it."""
    main = model.main_input_name
    if main == "input_ids":
        tensors = {"input_ids": torch.randint(1, VOCABULARY, (2, TOKENS))}
        if config.is_encoder_decoder:
            tensors["decoder_input_ids"] = torch.randint(1, VOCABULARY, (2, TOKENS - 4))
        if config.model_type == "molmo2":
            tensors["mm_token_type_ids"] = torch.zeros(2, TOKENS, dtype=torch.int64)  # without which it does not train
        return tensors
    if main == "pixel_values":
        size = getattr(config, "image_size", IMAGES.get(config.model_type, IMAGE))
        height, width = size if isinstance(size, list | tuple) else (size, size)
        return {main: torch.randn(2, getattr(config, "num_channels", 3), height, width)}
    if main == "input_values":
        return {main: torch.randn(2, 4000)}
    if main == "input_features":
        bins = getattr(config, "num_mel_bins", 80)
        length = 2 * getattr(config, "max_source_positions", 64)
        return {main: torch.randn(2, bins, length), "decoder_input_ids": torch.randint(1, VOCABULARY, (2, 4))}
    raise NotImplementedError(f"no random {main} are defined here")
