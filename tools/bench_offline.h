// SPDX-License-Identifier: Apache-2.0
// Whole-model speed without server or scheduler: prefill and decode, draws included, each beside
// what the machine allows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/benchmark/roofline.h"
#include "runner/program/forward_pass.h"

namespace heddle::tools {

struct OfflineOptions {
  std::vector<int64_t> prefill_tokens = {512, 4096};
  std::vector<int64_t> decode_batches = {1, 4, 16};
  std::vector<int64_t> verify_rows;  // of each sequence of a decode batch, beside one row
  int64_t chunk_tokens = 512;        // of one prefill step
  int64_t decode_context = 128;      // tokens every sequence has before its first decode step
  int64_t decode_steps = 64;
  int64_t repeats = 3;  // the median counts
};

struct OfflineRow {
  std::string what;    // "prefill 512", "decode batch 4", "verify 4 rows, batch 1"
  double seconds = 0;  // median of a whole prefill, or of a step
  double tokens_per_second = 0;

  // Of decode: the least bytes of a step over its time and, on the CPU, what reading memory reached
  // between the steps (the median of both), and the first as a share of the second.
  struct Traffic {
    double gigabytes_per_second = 0;
    double read_gb_per_s = 0;  // 0: not measured
    double bandwidth_share = 0;
  };

  std::optional<Traffic> traffic;
};

struct OfflineReport {
  std::optional<ops::Roofline> roofline;  // of the CPU, measured first, with the same threads
  std::vector<OfflineRow> rows;
};

// Whether every sequence fits into the model's context. Error: kInvalidArgument, naming the option.
Status check_offline(const OfflineOptions& options, int64_t context_length);

// The options were checked. Error: what the model cannot do.
Result<OfflineReport> bench_offline(runner::ForwardPass& pass, const OfflineOptions& options);

}  // namespace heddle::tools
