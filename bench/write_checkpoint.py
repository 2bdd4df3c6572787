#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint with random bfloat16 weights for a config.json, and logits of it in fp32.

The weights, the files and the logits are made by the transformers library on a GPU, so that loading is
measured, and `heddle verify` compares, with a checkpoint of real size that nothing here has written:

  bench/write_checkpoint.py bench/shapes/full80b_4l /tmp/checkpoint
  heddle verify /tmp/checkpoint --device cuda --dtype float32

Needs torch, transformers and safetensors.
"""

import argparse
import pathlib

import safetensors.torch
import torch
import transformers

TOKENS = 200
MOST_IDS = 151_000
ROW_STEP = 10  # of the logits that are kept


def draw(shape, generator):
    return torch.randn(shape, generator=generator, device="cuda")


def randomize(model):
    """Randomizes the weights that a new model leaves constant, and scales embeddings as training does."""
    generator = torch.Generator(device="cuda").manual_seed(2)
    for name, weight in model.named_parameters():
        if name.endswith("norm.weight"):
            weight += (0.1 * draw(weight.shape, generator)).to(weight.dtype)
        elif name.endswith("A_log"):
            weight.copy_(2 * torch.rand(weight.shape, generator=generator, device="cuda") - 2)
        elif name.endswith("dt_bias"):
            weight.copy_(draw(weight.shape, generator))
        elif "embed" in name:
            weight *= 20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", help="folder with a config.json")
    parser.add_argument("output", help="folder to write")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    config = transformers.AutoConfig.from_pretrained(arguments.shape)
    with torch.device("cuda"), torch.no_grad():
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
        randomize(model)
        model.save_pretrained(arguments.output, max_shard_size="4GB")
        model = model.float()
        model.set_experts_implementation("eager")
        below = min(config.vocab_size, MOST_IDS)
        ids = torch.randint(0, below, (TOKENS,), generator=torch.Generator("cpu").manual_seed(3), device="cpu")
        logits = model(ids[None].cuda()).logits[0]
    safetensors.torch.save_file(
        {"a.input_ids": ids.int(), "a.logits": logits[::ROW_STEP].contiguous().cpu()},
        pathlib.Path(arguments.output) / "cases.safetensors",
        metadata={"transformers": transformers.__version__},
    )


if __name__ == "__main__":
    main()
