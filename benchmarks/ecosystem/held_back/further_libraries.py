"""Networks, losses and transforms of a third set of libraries that nothing else here uses, Keras among them, held back."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

os.environ["KERAS_BACKEND"] = "torch"

import asteroid_filterbanks
import axial_positional_embedding
import bayesian_torch.layers
import blitz.modules
import botorch
import byol_pytorch
import chronos.chronos_bolt
import egnn_pytorch
import encodec.modules
import esm.axial_attention
import esm.model.esm2
import facenet_pytorch
import gateloop_transformer
import gluonts.torch.model.d_linear.module
import gluonts.torch.model.deepar.module
import iTransformer
import keras
import linformer
import lpips
import memory_efficient_attention_pytorch
import mixture_of_experts
import native_sparse_attention_pytorch
import ncps.torch
import ncps.wirings
import nystrom_attention
import product_key_memory
import pytorchcv.model_provider
import recurrent_memory_transformer_pytorch
import reformer_pytorch
import rtdl_num_embeddings
import segment_anything.modeling
import simple_hierarchical_transformer
import soft_moe_pytorch
import st_moe_pytorch
import tabm
import titans_pytorch
import torch
import torch_frame.nn.conv
import torch_harmonics
import torchcde
import torchvision
import whisper.audio
import whisper.model
import xlstm
from cases import Case, Collection
from keras import layers
from parts import Called, calling, hold_back, ids, leaves
from parts import normal_rows as rows
from torch import nn
from transformers import T5Config

collection = Collection("keras")
network = partial(hold_back, collection)


def cases() -> list[Case]:
    return collection.cases


# --- Keras


def sequential(*shape: int, of: tuple) -> Callable[[], nn.Module]:
    def create() -> nn.Module:
        keras.utils.clear_session()  # or else each model gets other names
        return keras.Sequential([layers.Input(shape), *[kind(*args, **options) for kind, args, options in of]])

    return create


def layer(kind: type, *args: object, **options: object) -> tuple:
    return kind, args, options


def attention() -> nn.Module:
    keras.utils.clear_session()
    inputs = layers.Input((9, 16))
    mixed = layers.LayerNormalization()(layers.MultiHeadAttention(2, 8)(inputs, inputs) + inputs)
    return keras.Model(inputs, layers.Dense(3)(mixed))


network(
    "keras",
    "Dense, BatchNormalization, Dropout",
    sequential(
        20,
        of=(
            layer(layers.Dense, 32, activation="relu"),
            layer(layers.BatchNormalization),
            layer(layers.Dropout, 0.3),
            layer(layers.Dense, 5, activation="softmax"),
        ),
    ),
    rows(20),
)
network(
    "keras",
    "Conv2D, SeparableConv2D, pooling",
    sequential(
        *(16, 16, 3),
        of=(
            layer(layers.Conv2D, 8, 3, activation="relu", padding="same"),
            layer(layers.MaxPooling2D),
            layer(layers.SeparableConv2D, 8, 3),
            layer(layers.UpSampling2D),
            layer(layers.GlobalAveragePooling2D),
            layer(layers.Dense, 4),
        ),
    ),
    rows(16, 16, 3),
)
network(
    "keras",
    "LSTM, GRU",
    sequential(10, 6, of=(layer(layers.LSTM, 12, return_sequences=True), layer(layers.GRU, 7), layer(layers.Dense, 2))),
    rows(10, 6),
)
network("keras", "MultiHeadAttention", attention, rows(9, 16))
network(
    "keras", "Embedding, Conv1D", sequential(9, of=(layer(layers.Embedding, 50, 8), layer(layers.Conv1D, 6, 3), layer(layers.Flatten))), ids(50, 9)
)
network(
    "keras", "SparseCategoricalCrossentropy", lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True), ids(4), leaves(4), modes=("call",)
)

# --- attention, memory and experts

SMALL = {"dim": 32, "heads": 2, "dim_head": 16}
TOKENS = {"num_tokens": 50, **SMALL, "depth": 1}
network("linformer", "Linformer", lambda: linformer.Linformer(dim=32, seq_len=40, depth=2, heads=2, k=8), rows(40, 32))
network(
    "reformer-pytorch",
    "ReformerLM",
    lambda: reformer_pytorch.ReformerLM(num_tokens=50, dim=32, depth=2, max_seq_len=64, heads=2, bucket_size=16, n_hashes=2, causal=True),
    ids(50, 64),
)
network("nystrom-attention", "NystromAttention", lambda: nystrom_attention.NystromAttention(**SMALL, num_landmarks=4, residual=True), rows(20, 32))
network(
    "memory-efficient-attention-pytorch",
    "Attention",
    lambda: memory_efficient_attention_pytorch.Attention(**SMALL, causal=True, memory_efficient=True, q_bucket_size=8, k_bucket_size=8),
    rows(24, 32),
)
network(
    "native-sparse-attention-pytorch",
    "SparseAttention",
    lambda: native_sparse_attention_pytorch.SparseAttention(
        **SMALL,
        sliding_window_size=4,
        compress_block_size=4,
        compress_block_sliding_stride=4,
        selection_block_size=4,
        num_selected_blocks=2,
    ),
    rows(31, 32),
)
network("product-key-memory", "PKM", lambda: product_key_memory.PKM(**SMALL, num_keys=8, topk=4), rows(10, 32))
network(
    "axial-positional-embedding",
    "AxialPositionalEmbedding",
    lambda: axial_positional_embedding.AxialPositionalEmbedding(dim=16, axial_shape=(4, 4)),
    rows(16, 16),
)
network("gateloop-transformer", "Transformer", lambda: gateloop_transformer.Transformer(num_tokens=50, dim=32, depth=1), ids(50, 16))
network(
    "simple-hierarchical-transformer",
    "HierarchicalTransformer",
    lambda: simple_hierarchical_transformer.HierarchicalTransformer(**TOKENS, seq_len=32, hierarchies=(1, 2), window_sizes=(8, None)),
    ids(50, 32),
)
network(
    "recurrent-memory-transformer-pytorch",
    "RecurrentMemoryTransformer",
    lambda: recurrent_memory_transformer_pytorch.RecurrentMemoryTransformer(**TOKENS, num_memory_tokens=4, seq_len=16, causal=True),
    ids(50, 16),
)
network(
    "titans-pytorch",
    "MemoryAsContextTransformer",
    lambda: titans_pytorch.MemoryAsContextTransformer(**TOKENS, segment_len=16, num_persist_mem_tokens=2, num_longterm_mem_tokens=2),
    ids(50, 40),
)
network("titans-pytorch", "NeuralMemory", lambda: titans_pytorch.NeuralMemory(dim=16, chunk_size=8), rows(32, 16))
network("soft-moe-pytorch", "SoftMoE", lambda: soft_moe_pytorch.SoftMoE(dim=16, seq_len=12, num_experts=3), rows(12, 16))
network("mixture-of-experts", "MoE", lambda: mixture_of_experts.MoE(dim=16, num_experts=4), rows(12, 16))
network("st-moe-pytorch", "MoE", lambda: st_moe_pytorch.MoE(dim=16, num_experts=4), rows(12, 16))
network(
    "xlstm",
    "xLSTMBlockStack",
    lambda: xlstm.xLSTMBlockStack(
        xlstm.xLSTMBlockStackConfig(
            mlstm_block=xlstm.mLSTMBlockConfig(mlstm=xlstm.mLSTMLayerConfig(conv1d_kernel_size=4, qkv_proj_blocksize=4, num_heads=2)),
            context_length=16,
            num_blocks=2,
            embedding_dim=16,
        )
    ),
    rows(16, 16),
)
network("fair-esm", "ESM2", lambda: esm.model.esm2.ESM2(num_layers=1, embed_dim=32, attention_heads=2), lambda n: torch.randint(4, 24, (n, 12)))
network("fair-esm", "RowSelfAttention", lambda: esm.axial_attention.RowSelfAttention(16, 2), lambda n: torch.randn(4, 6, n, 16))

# --- images, sound and points

network("lpips", "LPIPS", lambda: lpips.LPIPS(net="alex", pretrained=False, pnet_rand=True, verbose=False), *[rows(3, 64, 64)] * 2)
network("facenet-pytorch", "InceptionResnetV1", lambda: facenet_pytorch.InceptionResnetV1(num_classes=10, classify=True), rows(3, 80, 80))
network("pytorchcv", "lwopenpose2d", lambda: pytorchcv.model_provider.get_model("lwopenpose2d_mobilenet_cmupan_coco"), rows(3, 64, 64))
network(
    "byol-pytorch",
    "BYOL",
    lambda: byol_pytorch.BYOL(torchvision.models.resnet18(), image_size=32, hidden_layer="avgpool", augment_fn=nn.Identity()),
    rows(3, 32, 32),
)
VIT = {"img_size": 64, "patch_size": 16, "embed_dim": 32, "depth": 2, "num_heads": 2, "out_chans": 16}
network(
    "segment-anything-py",
    "ImageEncoderViT",
    lambda: segment_anything.modeling.ImageEncoderViT(**VIT, use_rel_pos=True, window_size=2, global_attn_indexes=(1,)),
    rows(3, 64, 64),
)
network(
    "segment-anything-py",
    "PromptEncoder",
    lambda: Called(lambda net, at, what: net((at, what), None, None), segment_anything.modeling.PromptEncoder(16, (4, 4), (64, 64), 8)),
    lambda n: torch.rand(n, 2, 2) * 64,
    ids(2, 2),
)
network("torch-harmonics", "RealSHT", lambda: torch_harmonics.RealSHT(16, 32, grid="equiangular"), leaves(16, 32))
SEANET = {"dimension": 16, "n_filters": 4, "n_residual_layers": 1, "ratios": [4, 2]}
network("encodec", "SEANetEncoder", lambda: encodec.modules.SEANetEncoder(**SEANET), rows(1, 256))
network("encodec", "SEANetDecoder", lambda: encodec.modules.SEANetDecoder(**SEANET), rows(16, 12))


def speech() -> nn.Module:
    model = whisper.model.Whisper(whisper.model.ModelDimensions(20, 16, 16, 2, 1, 50, 12, 16, 2, 1))
    model.alignment_heads = model.alignment_heads.to_dense()  # results are compared as they are
    nn.init.normal_(model.decoder.positional_embedding)  # which is memory as it was until a checkpoint is loaded
    return model


network("openai-whisper", "Whisper", speech, rows(20, 32), ids(50, 8))
network("openai-whisper", "log_mel_spectrogram", lambda: whisper.audio.log_mel_spectrogram, rows(4000), modes=("call",))
network(
    "asteroid-filterbanks",
    "Encoder",
    lambda: asteroid_filterbanks.Encoder(asteroid_filterbanks.STFTFB(64, 64, stride=32)),
    rows(1, 400),
    modes=("eval",),
)
network("egnn-pytorch", "EGNN", lambda: egnn_pytorch.EGNN(dim=16, num_nearest_neighbors=4), rows(10, 16), rows(10, 3))

# --- rows of tables, series and equations

network("tabm", "TabM", lambda: tabm.TabM.make(n_num_features=5, cat_cardinalities=[3, 4], d_out=2), rows(5), ids(3, 2))
network("rtdl-num-embeddings", "PeriodicEmbeddings", lambda: rtdl_num_embeddings.PeriodicEmbeddings(4, 6, lite=False), rows(4))
network("pytorch-frame", "FTTransformerConvs", lambda: torch_frame.nn.conv.FTTransformerConvs(16, num_layers=1, nhead=2), rows(5, 16))
network("pytorch-frame", "ExcelFormerConv", lambda: torch_frame.nn.conv.ExcelFormerConv(16, 5, 2), rows(5, 16))
network(
    "iTransformer",
    "iTransformer",
    lambda: iTransformer.iTransformer(num_variates=5, lookback_len=12, dim=16, depth=1, heads=2, dim_head=8, pred_length=(3, 6)),
    rows(12, 5),
)
BOLT = {
    "context_length": 64,
    "prediction_length": 16,
    "input_patch_size": 8,
    "input_patch_stride": 8,
    "quantiles": [0.1, 0.5, 0.9],
    "use_reg_token": True,
}
T5 = {"d_model": 16, "d_ff": 32, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "d_kv": 8, "vocab_size": 10, "decoder_start_token_id": 0}


def bolt() -> nn.Module:
    config = T5Config(**T5, pad_token_id=0, feed_forward_proj="relu")
    config.chronos_config = BOLT
    return chronos.chronos_bolt.ChronosBoltModelForForecasting(config)


network("chronos-forecasting", "ChronosBolt", bolt, rows(64))
DEEPAR = {"freq": "D", "context_length": 8, "prediction_length": 4, "hidden_size": 8, "lags_seq": [1, 2], "num_parallel_samples": 3}
network(
    "gluonts",
    "DeepARModel",
    lambda: gluonts.torch.model.deepar.module.DeepARModel(
        **DEEPAR, num_feat_dynamic_real=1, num_feat_static_real=1, num_feat_static_cat=1, cardinality=[2]
    ),
    *(ids(2, 1), rows(1), rows(10, 1), lambda n: torch.rand(n, 10), lambda n: torch.ones(n, 10), rows(4, 1)),
    modes=("eval",),
)
network(
    "gluonts",
    "DLinearModel",
    lambda: gluonts.torch.model.d_linear.module.DLinearModel(4, 8, hidden_dimension=8, kernel_size=3),
    lambda n: torch.rand(n, 8),
    lambda n: torch.ones(n, 8),
)
network("ncps", "CfC", lambda: ncps.torch.CfC(5, 8), rows(7, 5))
network("ncps", "LTC", lambda: ncps.torch.LTC(5, ncps.wirings.AutoNCP(12, 3)), rows(4, 5))


class Controlled(nn.Module):
    """A neural controlled differential equation."""

    def __init__(self):
        super().__init__()
        self.first, self.field = nn.Linear(3, 4), Called(lambda net, t, z: net(z).tanh().view(-1, 4, 3), nn.Linear(4, 12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        path = torchcde.LinearInterpolation(torchcde.linear_interpolation_coeffs(x))
        start = self.first(path.evaluate(path.interval[0]))
        return torchcde.cdeint(X=path, func=self.field, z0=start, t=path.interval, method="rk4", options={"step_size": 1.0}, adjoint=False)


network("torchcde", "cdeint", Controlled, rows(6, 3))
network("bayesian-torch", "LinearReparameterization", lambda: bayesian_torch.layers.LinearReparameterization(6, 3), rows(6))
network("blitz-bayesian-pytorch", "BayesianLinear", lambda: blitz.modules.BayesianLinear(6, 3), rows(6))


def process() -> nn.Module:
    x = torch.rand(10, 2, dtype=torch.float64)
    return botorch.models.SingleTaskGP(x, x.sin().sum(-1, keepdim=True)).eval()


def posterior(x: torch.Tensor, model: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    at = model.posterior(x)
    return at.mean, at.variance


POINTS = [lambda n: torch.rand(n, 2, dtype=torch.float64), lambda n: torch.rand(n, 1, 2, dtype=torch.float64)]
network("botorch", "SingleTaskGP, posterior", lambda: partial(posterior, model=process()), POINTS[0], modes=("call",))
network("botorch", "LogExpectedImprovement", calling("forward", lambda: botorch.acquisition.LogExpectedImprovement(process(), best_f=0.5)), POINTS[1])
