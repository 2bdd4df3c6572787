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
  // Rows of each sequence in steps that verify drafts, compared with one row.
  std::vector<int64_t> verify_rows;
  int64_t chunk_tokens = 512;    // prompt tokens of one prefill step
  int64_t decode_context = 128;  // tokens every sequence has before its first decode step
  int64_t decode_steps = 64;
  int64_t repeats = 3;  // the median counts
};

struct OfflineRow {
  std::string what;    // "prefill 512", "decode batch 4", "verify 4 rows, batch 1"
  double seconds = 0;  // median of a whole prefill, or of a step
  double tokens_per_second = 0;

  // Memory traffic of decode steps: the bytes a step must move over its time; on the CPU also the
  // bandwidth that reading reached between the steps (both medians), and the first as a share of
  // the second.
  struct Traffic {
    double gigabytes_per_second = 0;
    double read_gb_per_s = 0;  // 0: not measured
    double bandwidth_share = 0;
  };

  std::optional<Traffic> traffic;
};

struct OfflineReport {
  // The CPU's roofline, measured before the models with the same threads.
  std::optional<ops::Roofline> roofline;
  std::vector<OfflineRow> rows;
};

// Whether every sequence fits into the model's context. Error: kInvalidArgument, naming the option.
Status check_offline(const OfflineOptions& options, int64_t context_length);

// The options were checked. Error: what the model cannot do.
Result<OfflineReport> bench_offline(runner::ForwardPass& pass, const OfflineOptions& options);

}  // namespace heddle::tools
