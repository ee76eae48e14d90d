"""A byte-level Llama: the model of the transformers package, with the first weights that it gives itself."""

from __future__ import annotations

from torch import Tensor, nn

from lioncub.errors import ConfigError
from lioncub.tools.jobs.gpt import NUM_BYTES


class Llama(nn.Module):
    """Maps bytes `[batch, length]` to logits of the next byte `[batch, length, 256]`; ``causal`` is transformers' own.

    ConfigError where transformers is not installed.
    """

    def __init__(self, *, width: int, mlp_width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        try:
            from transformers import LlamaConfig, LlamaForCausalLM  # here: nothing else needs the package
        except ModuleNotFoundError as missing:
            raise ConfigError(f"a Llama needs {missing.name}: pip install 'lioncub[study]'") from missing
        config = LlamaConfig(
            vocab_size=NUM_BYTES,
            hidden_size=width,
            intermediate_size=mlp_width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            max_position_embeddings=context,
            use_cache=False,
            bos_token_id=None,
            eos_token_id=None,
        )
        self.causal = LlamaForCausalLM(config)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.causal(input_ids=x).logits
        return logits
