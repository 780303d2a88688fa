"""Models of HuggingFace transformers, from small random configurations: forward and backward are eager's."""

from __future__ import annotations

import pytest
import torch

import dovetail

pytestmark = pytest.mark.trials

transformers = pytest.importorskip("transformers", reason="transformers is not installed; pip install transformers")

SMALL = {"vocab_size": 61, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
HIDDEN = {"hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 40, **SMALL}


def gpt2():
    config = transformers.GPT2Config(n_positions=32, n_embd=24, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **SMALL)
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
