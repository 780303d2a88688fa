"""Models of HuggingFace transformers, from small random configurations: forward and backward are eager's."""

from __future__ import annotations

import copy

import pytest
import torch

import dovetail

pytestmark = pytest.mark.trials

transformers = pytest.importorskip("transformers", reason="transformers is not installed; pip install transformers")

SMALL = {"vocab_size": 61, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
HIDDEN = {"hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 40, **SMALL}


def gpt2():
    config = transformers.GPT2Config(n_positions=64, n_embd=24, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **SMALL)
    return transformers.GPT2LMHeadModel(config)


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **HIDDEN))


def bert():
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.BertForMaskedLM(transformers.BertConfig(num_attention_heads=2, **none, **HIDDEN))


@pytest.mark.parametrize("make", [gpt2, llama, bert])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
def test_forward_and_backward_are_eagers(make, masked):
    torch.manual_seed(0)
    model = make()
    compiled = dovetail.jit(model)
    for _ in range(2):
        ids = torch.randint(3, 61, (2, 9))
        given = {"input_ids": ids, "labels": ids}
        if masked:
            given["attention_mask"] = (torch.arange(9) < torch.tensor([[9], [6]])).long()
        got, want = compiled(**given), model(**given)
        assert type(got) is type(want) and list(got) == list(want)
        torch.testing.assert_close((got.loss, got.logits), (want.loss, want.logits))
        ours, theirs = (torch.autograd.grad(out.loss, list(model.parameters()), allow_unused=True) for out in (got, want))
        torch.testing.assert_close(ours, theirs)
    assert compiled.cache_info().programs == 1, dovetail.cache_misses(compiled)


def decoders():
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    qwen = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**HIDDEN | heads))
    return {"gpt2": gpt2(), "llama": llama(), "qwen": qwen, "t5": t5(), "whisper": whisper()}


def t5():
    config = transformers.T5Config(d_model=24, d_kv=8, d_ff=40, num_layers=2, num_heads=3, decoder_start_token_id=1, **SMALL)
    return transformers.T5ForConditionalGeneration(config)


def whisper():
    heads = {f"{part}_{what}": n for part in ("encoder", "decoder") for what, n in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 32))}
    config = transformers.WhisperConfig(num_mel_bins=8, d_model=24, max_source_positions=30, decoder_start_token_id=1, **heads, **SMALL)
    model = transformers.WhisperForConditionalGeneration(config)
    model.generation_config.update(max_length=None, suppress_tokens=None, begin_suppress_tokens=None)
    return model


@pytest.mark.parametrize("cache", [None, "static"], ids=["growing", "static"])
@pytest.mark.parametrize("name", ["gpt2", "llama", *[pytest.param(name, marks=pytest.mark.slow) for name in ("qwen", "t5", "whisper")]])
def test_generate_runs_the_compiled_model_and_returns_eagers_tokens(name, cache):
    torch.manual_seed(0)
    model = decoders()[name].eval()
    given = {"input_features": torch.randn(2, 8, 60)} if name == "whisper" else {"input_ids": torch.randint(3, 61, (2, 5))}
    given |= {"max_new_tokens": 20, "min_new_tokens": 20, "do_sample": False, "cache_implementation": cache}
    compiled, want = dovetail.jit(model), model.generate(**given)
    assert torch.equal(compiled.generate(**given), want)
    info = compiled.cache_info()
    assert info.hits + info.misses == 20 and info.misses <= 3  # a program for all lengths of the cache


def test_a_method_of_a_compiled_model_has_the_model_as_self():
    class Halves(torch.nn.Linear):
        def twice(self, x):
            self.calls = 2
            return self(x) + self.forward(x), type(self).__name__, isinstance(self, Halves), super().extra_repr()

        def copied(self):
            return copy.deepcopy(self)

    model = Halves(4, 4)
    compiled, x = dovetail.jit(model), torch.ones(4)
    result, *rest = compiled.twice(x)
    torch.testing.assert_close(result, model(x) * 2)
    assert rest == ["Halves", True, model.extra_repr()] and model.calls == 2
    assert sum(compiled.cache_info()[:2]) == 2
    other = compiled.copied()
    assert type(other) is Halves and other.weight is not model.weight
