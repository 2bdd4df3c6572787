// SPDX-License-Identifier: Apache-2.0
// What an engine can be told. Every field has a default that is right for most machines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace heddle {

struct EngineOptions {
  std::filesystem::path
      model_dir;  // a folder in hub layout: config.json, *.safetensors, tokenizer.json
  std::string load_format =
      "auto";  // "auto": safetensors; "dummy": seeded random weights, needs only config.json
  std::string dtype = "auto";  // "auto": as stored; "float32", "bfloat16", "float16"

  // Slow and segmentation-proof: fp32, recurrent delta rule for every token, fixed-order sums. Any
  // two ways to compute a token give the same bits (docs/numerics.md). Implies dtype float32.
  bool exact = false;

  int32_t num_threads = 0;  // compute threads; 0: the machine's physical cores

  int64_t context_length = 0;  // tokens a sequence may have; 0: what the model was made for
  int32_t max_running_requests =
      0;  // sequences in one step; 0: as many as the pools allow, at most 64
  int64_t chunked_prefill_tokens = 0;  // prompt tokens of one step; 0: 512
  int32_t page_size = 16;              // tokens of a KV page: a power of two from 1 to 128
  int64_t max_total_tokens = 0;        // size of the KV pool in tokens; 0: from memory_fraction
  int32_t max_queued_requests = 1024;  // waiting requests; one more is refused
  double memory_fraction = 0.5;        // of the free memory, for weights copies and pools together
  uint64_t random_seed = 0;            // seeds requests that bring none; 0: from the system

  bool skip_tokenizer = false;  // token ids in and out only

  // Called now and then while weights load; may be empty.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_load_progress;
};

}  // namespace heddle
