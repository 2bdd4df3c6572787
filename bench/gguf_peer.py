#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files of a Qwen3-Next model, and a comparison with another program that reads them.

  bench/gguf_peer.py write models/heddle-tiny tiny-q4_k.gguf --type Q4_K
  bench/gguf_peer.py compare tiny-q4_k.gguf --peer FOLDER

`write` makes a file from a folder in the hub's layout: every matrix rounded to nearest in the named
type, or to Q8_0 where its rows are no whole blocks, and the tokenizer. `compare` serves a file with
`heddle serve --exact` and opens it with node-llama-cpp, which FOLDER has installed:

  npm install node-llama-cpp@3.22.1 @node-llama-cpp/linux-x64@3.22.1 --ignore-scripts --omit=optional

Both continue 20 prompts greedily. It prints JSON: how many texts are equal, and the mean
Kullback-Leibler divergence of Heddle's probabilities from the peer's after each part of Heddle's texts,
over Heddle's 20 most likely tokens and all others together.
"""

import argparse
import http.client
import json
import math
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TYPES = {
    **{"F32": 0, "F16": 1, "BF16": 30},
    **{"Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "MXFP4": 39},
    **{"Q4_K": 12, "Q5_K": 13, "Q6_K": 14},
}
MXFP4_VALUES = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
TOP = 20


# ---- Blocks: the bytes of some numbers, rounded to nearest ----


def clamp(value, low, high):
    return max(low, min(high, value))


def half(value):
    return struct.pack("<e", value)


def as_half(value):
    return struct.unpack("<e", half(value))[0]


def nibbles(codes):
    """Code j in the low half of byte j, code j + n/2 in its high half."""
    n = len(codes) // 2
    return bytes(codes[j] | codes[j + n] << 4 for j in range(n))


def symmetric_block(values, bits):
    """Q4_0, Q5_0: the number with the largest magnitude becomes the lowest code."""
    low = 1 << bits - 1
    largest = max(values, key=abs)
    scale = as_half(largest / -low)
    codes = [clamp(round(v / scale) + low, 0, 2 * low - 1) if scale else low for v in values]
    return half(scale), codes


def minimum_block(values, bits):
    """Q4_1, Q5_1."""
    low, high = min(values), max(values)
    top = (1 << bits) - 1
    scale, low = as_half((high - low) / top), as_half(low)
    codes = [clamp(round((v - low) / scale), 0, top) if scale else 0 for v in values]
    return half(scale) + half(low), codes


def fifth_bits(codes):
    return struct.pack("<I", sum((code >> 4) << j for j, code in enumerate(codes)))


def q4_0(values):
    head, codes = symmetric_block(values, 4)
    return head + nibbles(codes)


def q4_1(values):
    head, codes = minimum_block(values, 4)
    return head + nibbles(codes)


def q5_0(values):
    head, codes = symmetric_block(values, 5)
    return head + fifth_bits(codes) + nibbles([code & 15 for code in codes])


def q5_1(values):
    head, codes = minimum_block(values, 5)
    return head + fifth_bits(codes) + nibbles([code & 15 for code in codes])


def q8_0(values):
    scale = as_half(max(map(abs, values)) / 127)
    codes = [clamp(round(v / scale), -127, 127) if scale else 0 for v in values]
    return half(scale) + struct.pack("<32b", *codes)


def mxfp4(values):
    largest = max(map(abs, values))
    exponent = clamp(math.floor(math.log2(largest)) - 2 + 127, 0, 254) if largest > 0 else 0
    scale = 2.0 ** (exponent - 127)
    codes = []
    for value in values:
        magnitude = abs(value) / scale
        code = min(range(8), key=lambda c: abs(MXFP4_VALUES[c] - magnitude))
        codes.append(code | 8 if value < 0 else code)
    return bytes([exponent]) + nibbles(codes)


def k_block(values, bits):
    """Q4_K, Q5_K: eight groups of 32 with scales and minima of 6 bits."""
    top = (1 << bits) - 1
    groups = [values[i : i + 32] for i in range(0, 256, 32)]
    minima = [max(0.0, -min(group)) for group in groups]
    scales = [(max(group) + low) / top for group, low in zip(groups, minima)]
    d, dmin = as_half(max(scales) / 63), as_half(max(minima) / 63)
    s = [clamp(round(scale / d), 0, 63) if d else 0 for scale in scales]
    m = [clamp(round(low / dmin), 0, 63) if dmin else 0 for low in minima]
    packed = bytearray(12)
    for j in range(4):
        packed[j] = s[j] | (s[j + 4] >> 4) << 6
        packed[j + 4] = m[j] | (m[j + 4] >> 4) << 6
        packed[j + 8] = s[j + 4] & 15 | (m[j + 4] & 15) << 4
    codes = []
    for group, scale, low in zip(groups, s, m):
        step = d * scale
        codes += [clamp(round((v + dmin * low) / step), 0, top) if step else 0 for v in group]
    high = bytearray(32)
    low_bytes = bytearray()
    for i in range(0, 256, 64):
        for l in range(32):
            first, second = codes[i + l], codes[i + 32 + l]
            low_bytes.append(first & 15 | (second & 15) << 4)
            high[l] |= (first >> 4) << i // 32 | (second >> 4) << i // 32 + 1
    return half(d) + half(dmin) + bytes(packed) + (bytes(high) if bits == 5 else b"") + bytes(low_bytes)


def q6_k(values):
    groups = [values[i : i + 16] for i in range(0, 256, 16)]
    scales = [max(group, key=abs) / -32 for group in groups]
    largest = max(scales, key=abs)
    d = as_half(largest / -128)
    s = [clamp(round(scale / d), -128, 127) if d else 0 for scale in scales]
    codes = []
    for group, scale in zip(groups, s):
        step = d * scale
        codes += [clamp(round(v / step), -32, 31) + 32 if step else 32 for v in group]
    low, high = bytearray(128), bytearray(64)
    for part in range(2):
        for l in range(32):
            four = [codes[part * 128 + l + 32 * i] for i in range(4)]
            low[part * 64 + l] = four[0] & 15 | (four[2] & 15) << 4
            low[part * 64 + l + 32] = four[1] & 15 | (four[3] & 15) << 4
            high[part * 32 + l] = sum((code >> 4) << 2 * i for i, code in enumerate(four))
    return bytes(low) + bytes(high) + struct.pack("<16b", *s) + half(d)


def bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.pack("<H", bits + 0x7FFF + (bits >> 16 & 1) >> 16)


BLOCKS = {
    "F32": (1, lambda v: struct.pack("<f", v[0])),
    "F16": (1, lambda v: half(v[0])),
    "BF16": (1, lambda v: bf16(v[0])),
    "Q4_0": (32, q4_0),
    "Q4_1": (32, q4_1),
    "Q5_0": (32, q5_0),
    "Q5_1": (32, q5_1),
    "Q8_0": (32, q8_0),
    "MXFP4": (32, mxfp4),
    "Q4_K": (256, lambda v: k_block(v, 4)),
    "Q5_K": (256, lambda v: k_block(v, 5)),
    "Q6_K": (256, q6_k),
}


# ---- Writing a file ----


def read_tensors(folder):
    """All tensors of a folder: their shapes and numbers, by name."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        (size,) = struct.unpack_from("<Q", data)
        for name, entry in json.loads(data[8 : 8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            if entry["dtype"] == "F32":
                values = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
            else:  # BF16
                words = struct.unpack(f"<{(end - begin) // 2}H", data[begin:end])
                values = struct.unpack(f"<{len(words)}f", b"".join(struct.pack("<I", w << 16) for w in words))
            tensors[name] = (entry["shape"], list(values))
    return tensors


def string(text):
    text = text.encode()
    return struct.pack("<Q", len(text)) + text


def metadata_entry(key, value):
    def scalar(v):
        if isinstance(v, bool):
            return 7, struct.pack("<?", v)
        if isinstance(v, int):
            return 4, struct.pack("<I", v)
        if isinstance(v, float):
            return 6, struct.pack("<f", v)
        return 8, string(v)

    if not isinstance(value, list):
        kind, data = scalar(value)
        return string(key) + struct.pack("<I", kind) + data
    items = [(5, struct.pack("<i", v)) if isinstance(v, int) else scalar(v) for v in value]
    return string(key) + struct.pack("<IIQ", 9, items[0][0], len(items)) + b"".join(data for _, data in items)


def tokenizer_metadata(folder, vocabulary):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    tokens = [f"[PAD{i}]" for i in range(vocabulary)]
    kinds = [5] * vocabulary
    for token, index in tokenizer["model"]["vocab"].items():
        tokens[index], kinds[index] = token, 1
    ids = {}
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]], kinds[added["id"]] = added["content"], 3
        ids[added["content"]] = added["id"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": ids[settings["eos_token"]],
        "tokenizer.ggml.padding_token_id": ids[settings["pad_token"]],
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": settings["chat_template"],
    }


def sizes_metadata(config):
    sizes = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config["head_dim"],
        "attention.value_length": config["head_dim"],
        "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "rope.freq_base": float(config["rope_theta"]),
        "rope.dimension_count": int(config["head_dim"] * config["partial_rotary_factor"]),
        "expert_count": config["num_experts"],
        "expert_used_count": config["num_experts_per_tok"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_feed_forward_length": config["shared_expert_intermediate_size"],
        "full_attention_interval": config["full_attention_interval"],
        "ssm.conv_kernel": config["linear_conv_kernel_dim"],
        "ssm.state_size": config["linear_key_head_dim"],
        "ssm.group_count": config["linear_num_key_heads"],
        "ssm.time_step_rank": config["linear_num_value_heads"],
        "ssm.inner_size": config["linear_value_head_dim"] * config["linear_num_value_heads"],
    }
    return {"general.architecture": "qwen3next", "general.name": "heddle-tiny"} | {
        f"qwen3next.{key}": value for key, value in sizes.items()
    }


NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}


def split_qkvz(config, shape, values):
    """Rows of each key head, its q, k, v and z, as all q, k and v, and all z."""
    heads, key = config["linear_num_key_heads"], config["linear_key_head_dim"]
    value = config["linear_num_value_heads"] // heads * config["linear_value_head_dim"]
    width, group = shape[1], 2 * key + 2 * value
    rows = lambda first, count: [
        values[(head * group + first + i) * width :][:width] for head in range(heads) for i in range(count)
    ]
    flat = lambda parts: [v for part in parts for row in part for v in row]
    qkv = flat([rows(0, key), rows(key, key), rows(2 * key, value)])
    z = flat([rows(2 * key + value, value)])
    return [("attn_qkv.weight", [len(qkv) // width, width], qkv), ("attn_gate.weight", [len(z) // width, width], z)]


def layer_tensors(config, tensors, layer):
    prefix = f"model.layers.{layer}."
    found = []
    for name, (shape, values) in tensors.items():
        if not name.startswith(prefix) or ".experts." in name:
            continue
        part = name[len(prefix) :]
        module, ending = part.rsplit(".", 1)
        if part == "linear_attn.in_proj_qkvz.weight":
            found += split_qkvz(config, shape, values)
        elif part == "linear_attn.A_log":
            found.append(("ssm_a", shape, [-math.exp(v) for v in values]))
        elif part == "linear_attn.dt_bias":
            found.append(("ssm_dt.bias", shape, values))
        else:
            if part.endswith("norm.weight") and module != "linear_attn.norm":
                values = [v + 1 for v in values]
            if module in ("linear_attn.conv1d", "mlp.shared_expert_gate"):
                shape = [n for n in shape if n != 1]
            found.append((f"{NAMES[module]}.{ending}", shape, values))
    for stored, hub in (("gate", "gate_proj"), ("up", "up_proj"), ("down", "down_proj")):
        matrices = [tensors[f"{prefix}mlp.experts.{e}.{hub}.weight"] for e in range(config["num_experts"])]
        shape = [len(matrices)] + matrices[0][0]
        found.append((f"ffn_{stored}_exps.weight", shape, [v for _, values in matrices for v in values]))
    return [(f"blk.{layer}.{name}", shape, values) for name, shape, values in found]


def stored_type(name, shape, wanted):
    if len(shape) == 1 or any(part in name for part in ("conv1d", "ffn_gate_inp", "norm")):
        return "F32"
    return wanted if shape[-1] % BLOCKS[wanted][0] == 0 else "Q8_0"


def write(arguments):
    folder = pathlib.Path(arguments.folder)
    config = json.loads((folder / "config.json").read_text())
    tensors = read_tensors(folder)
    stored = [
        ("token_embd.weight", *tensors["model.embed_tokens.weight"]),
        ("output.weight", *tensors["lm_head.weight"]),
        ("output_norm.weight", tensors["model.norm.weight"][0], [v + 1 for v in tensors["model.norm.weight"][1]]),
    ]
    for layer in range(config["num_hidden_layers"]):
        stored += layer_tensors(config, tensors, layer)
    infos, data = b"", bytearray()
    for name, shape, values in stored:
        kind = stored_type(name, shape, arguments.type)
        columns, pack = BLOCKS[kind]
        infos += string(name) + struct.pack("<I", len(shape))
        infos += b"".join(struct.pack("<Q", n) for n in reversed(shape)) + struct.pack("<IQ", TYPES[kind], len(data))
        for i in range(0, len(values), columns):
            data += pack(values[i : i + columns])
        data += bytes(-len(data) % 32)
    entries = sizes_metadata(config) | tokenizer_metadata(folder, config["vocab_size"])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(stored), len(entries))
    head += b"".join(metadata_entry(key, value) for key, value in entries.items()) + infos
    pathlib.Path(arguments.output).write_bytes(head + bytes(-len(head) % 32) + bytes(data))


# ---- Comparing ----


def prompts():
    questions = []
    for name in ("math", "skill", "story", "recall"):
        lines = (ROOT / f"tests/golden/heddle_tiny/{name}.jsonl").read_text().splitlines()
        questions += [json.loads(line)["messages"][0]["content"] for line in lines[:5]]
    return [f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n" for question in questions]


class Server:
    def __init__(self, program, model):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        command = [program, "serve", model, "--port", str(self.port), "--exact", "--dtype", "float32"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 60
        while not self.is_healthy():
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{' '.join(command)} did not start: {self.process.stderr.read()}")
            time.sleep(0.05)

    def is_healthy(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def generate(self, prompt, count):
        body = {
            "text": prompt,
            "sampling_params": {"temperature": 0, "max_new_tokens": count},
            "return_logprob": True,
            "top_logprobs_num": TOP,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def stop(self):
        self.process.terminate()
        self.process.wait()


def ask_peer(peer, model, arguments, question):
    script = shutil.copy(ROOT / "bench/gguf_peer.mjs", peer)
    command = ["node", script, os.path.abspath(model), *arguments]
    answer = subprocess.run(command, input=json.dumps(question), capture_output=True, text=True, cwd=peer)
    if answer.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed: {answer.stderr}")
    return json.loads(answer.stdout)


def divergence(top, peer):
    """Of the peer's distribution from ours: its logarithms for our likeliest tokens, the rest as one."""
    total, ours, theirs = 0.0, 0.0, 0.0
    for logprob, token, *_ in top:
        p, q = math.exp(logprob), max(peer.get(str(token), 0.0), 1e-12)
        total += p * (logprob - math.log(q))
        ours += p
        theirs += q
    rest = 1 - ours
    return total + (rest * math.log(rest / max(1 - theirs, 1e-12)) if rest > 1e-9 else 0.0)


def compare(arguments):
    server = Server(arguments.heddle, arguments.file)
    asked = prompts()
    try:
        answers = [server.generate(prompt, arguments.tokens) for prompt in asked]
    finally:
        server.stop()
    peer = ask_peer(arguments.peer, arguments.file, ["greedy", str(arguments.tokens)], asked)
    facts = [answer["meta_info"] for answer in answers]
    ids = [[token for _, token, *_ in fact["output_token_logprobs"]] for fact in facts]
    forced = [{"prompt": prompt, "ids": own} for prompt, own in zip(asked, ids)]
    probabilities = ask_peer(arguments.peer, arguments.file, ["probabilities"], forced)
    divergences = [
        divergence(top, theirs)
        for fact, of_text in zip(facts, probabilities)
        for top, theirs in zip(fact["output_top_logprobs"], of_text)
    ]
    report = {
        "file": os.path.basename(arguments.file),
        "prompts": len(asked),
        "same_prompt_tokens": sum(fact["prompt_tokens"] == len(p["prompt_ids"]) for fact, p in zip(facts, peer)),
        "same_texts": sum(answer["text"].strip() == p["text"].strip() for answer, p in zip(answers, peer)),
        "positions": len(divergences),
        "mean_divergence": sum(divergences) / len(divergences),
        "largest_divergence": max(divergences),
    }
    print(json.dumps(report))
    return 0 if report["same_texts"] >= 15 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    writing = commands.add_parser("write")
    writing.add_argument("folder")
    writing.add_argument("output")
    writing.add_argument("--type", choices=TYPES, default="BF16")
    writing.set_defaults(run=write)
    comparing = commands.add_parser("compare")
    comparing.add_argument("file")
    comparing.add_argument("--peer", required=True)
    comparing.add_argument("--heddle", default=str(ROOT / "build/release/bin/heddle"))
    comparing.add_argument("--tokens", type=int, default=48)
    comparing.set_defaults(run=compare)
    arguments = parser.parse_args()
    sys.exit(arguments.run(arguments))


if __name__ == "__main__":
    main()
