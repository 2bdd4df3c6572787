// SPDX-License-Identifier: Apache-2.0
// Speed of a whole model without server or scheduler: prefill and decode including sampling, each
// compared with what the machine allows.
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
  // Rows per sequence in steps that verify drafts; such steps are compared with steps of one row.
  std::vector<int64_t> verify_rows;
  int64_t chunk_tokens = 512;    // prompt tokens per prefill step
  int64_t decode_context = 128;  // tokens of every sequence before its first decode step
  int64_t decode_steps = 64;
  int64_t repeats = 3;  // number of measurements, of which the median is reported
};

struct OfflineRow {
  // The measurement, as "prefill 512", "decode batch 4" or "verify 4 rows, batch 1".
  std::string what;
  double seconds = 0;  // median duration of a whole prefill, or of a step
  double tokens_per_second = 0;

  // Memory traffic of decode steps: the bytes that a step must move divided by its time. On the CPU
  // also the read bandwidth measured between the steps, and the first as a share of the second. All
  // are medians.
  struct Traffic {
    double gigabytes_per_second = 0;
    double read_gb_per_s = 0;  // read bandwidth of the CPU; 0: not measured
    double bandwidth_share = 0;
  };

  std::optional<Traffic> traffic;
};

struct OfflineReport {
  // The CPU's roofline, measured before the models with the same number of threads.
  std::optional<ops::Roofline> roofline;
  std::vector<OfflineRow> rows;
};

// Checks that every sequence fits the model's context. Error: kInvalidArgument, naming the option.
Status check_offline(const OfflineOptions& options, int64_t context_length);

// Runs the benchmark with options that were checked. Error: something that the model cannot do.
Result<OfflineReport> bench_offline(runner::ForwardPass& pass, const OfflineOptions& options);

}  // namespace heddle::tools
