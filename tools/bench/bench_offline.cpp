// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench_offline.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include <fmt/format.h>

#include "device/thread_pool.h"
#include "runner/load/decode_traffic.h"
#include "tools/bench/bench_sequences.h"

namespace heddle::tools {

namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Token ids spread over the vocabulary, equal in every run.
std::vector<TokenId> spread_ids(int64_t count, int64_t vocab_size, int64_t start) {
  std::vector<TokenId> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<TokenId>(((i + start) * 7919) % (vocab_size - 1) + 1));
  }
  return ids;
}

Status prefill(BenchSequences& sequences, int64_t sequence, std::span<const TokenId> ids,
               int64_t chunk) {
  for (size_t done = 0; done < ids.size();) {
    const size_t count = std::min(static_cast<size_t>(chunk), ids.size() - done);
    const bool is_last = done + count == ids.size();
    const std::array<BenchSequences::Feed, 1> feed = {
        {{.sequence = sequence, .tokens = ids.subspan(done, count), .draws = is_last}}};
    HEDDLE_RETURN_IF_ERROR(sequences.step(feed));
    done += count;
  }
  return {};
}

// Prefills before measuring: the first loads kernels, the second is captured if the device can.
constexpr int64_t kWarmUps = 2;

Result<OfflineRow> bench_prefill(runner::ForwardPass& pass, const OfflineOptions& options,
                                 int64_t count) {
  HEDDLE_ASSIGN_OR_RETURN(BenchSequences sequences,
                          BenchSequences::create(pass, {.max_tokens = count}));
  const std::vector<TokenId> ids = spread_ids(count, pass.config().vocab_size, 0);
  std::vector<double> seconds;
  for (int64_t repeat = -kWarmUps; repeat < options.repeats; ++repeat) {
    sequences.restart(0);
    const double start = now_seconds();
    HEDDLE_RETURN_IF_ERROR(prefill(sequences, 0, ids, options.chunk_tokens));
    HEDDLE_RETURN_IF_ERROR(sequences.finish());
    if (repeat >= 0) seconds.push_back(now_seconds() - start);
  }
  OfflineRow row{.what = fmt::format("prefill {}", count), .seconds = median(seconds)};
  row.tokens_per_second = static_cast<double>(count) / row.seconds;
  return row;
}

// Measures steps of `rows` tokens for each sequence, of which all except the first are drafts.
Result<OfflineRow> bench_decode(runner::ForwardPass& pass, const OfflineOptions& options,
                                int64_t batch, int64_t rows, ops::ReadProbe* probe) {
  const int64_t num_steps = options.decode_steps * options.repeats;
  HEDDLE_ASSIGN_OR_RETURN(
      BenchSequences sequences,
      BenchSequences::create(pass, {.num_sequences = batch,
                                    .max_tokens = options.decode_context + (num_steps + 1) * rows,
                                    .num_drafts = rows - 1}));
  const int64_t vocab_size = pass.config().vocab_size;
  for (int64_t b = 0; b < batch; ++b) {
    HEDDLE_RETURN_IF_ERROR(prefill(sequences, b,
                                   spread_ids(options.decode_context, vocab_size, b * 131),
                                   options.chunk_tokens));
  }
  std::vector<std::vector<TokenId>> ids(static_cast<size_t>(batch));
  std::vector<BenchSequences::Feed> feeds(static_cast<size_t>(batch));
  // Steps and bandwidth probes alternate, so that other load on a shared machine affects both. Each
  // turn has several steps, because a probe flushes the CPU caches, which would slow down small
  // models.
  constexpr int64_t kStepsPerProbe = 8;
  std::vector<double> seconds;
  std::vector<double> read_gb_per_s;
  for (int64_t step = 0; step <= num_steps; ++step) {
    if (probe != nullptr && step % kStepsPerProbe == 0) {
      read_gb_per_s.push_back(probe->gb_per_s());
    }
    for (int64_t b = 0; b < batch; ++b) {
      const auto i = static_cast<size_t>(b);
      ids[i] = spread_ids(rows, vocab_size, step * 17 + b * 1009);
      const std::span<const TokenId> all = ids[i];
      feeds[i] = {.sequence = b, .tokens = all.first(1), .drafts = all.subspan(1)};
    }
    const double start = now_seconds();
    HEDDLE_RETURN_IF_ERROR(sequences.step(feeds));
    if (step > 0) seconds.push_back(now_seconds() - start);
  }
  HEDDLE_RETURN_IF_ERROR(sequences.finish());
  OfflineRow row{.what = rows > 1 ? fmt::format("verify {} rows, batch {}", rows, batch)
                                  : fmt::format("decode batch {}", batch),
                 .seconds = median(seconds)};
  row.tokens_per_second = static_cast<double>(batch * rows) / row.seconds;
  if (rows > 1) return row;
  const double bytes =
      runner::decode_traffic(pass, batch, options.decode_context + num_steps / 2).total();
  const double gb_per_s = bytes / row.seconds / 1e9;
  row.traffic = {.gigabytes_per_second = gb_per_s};
  if (probe != nullptr) {
    row.traffic->read_gb_per_s = median(std::move(read_gb_per_s));
    row.traffic->bandwidth_share = gb_per_s / row.traffic->read_gb_per_s;
  }
  return row;
}

}  // namespace

Status check_offline(const OfflineOptions& options, int64_t context_length) {
  for (const int64_t count : options.prefill_tokens) {
    if (count <= context_length) continue;
    return invalid_argument(
        fmt::format("--prefill {}: the model's context is {} tokens", count, context_length));
  }
  if (options.decode_batches.empty()) return ok_status();
  int64_t rows = 1;
  for (const int64_t count : options.verify_rows) rows = std::max(rows, count);
  const int64_t decoded = (options.decode_steps * options.repeats + 1) * rows;
  if (options.decode_context + decoded <= context_length) return ok_status();
  return invalid_argument(fmt::format(
      "--context {} and --steps {} for --repeats {} need {} tokens; the model's context is {}",
      options.decode_context, options.decode_steps, options.repeats,
      options.decode_context + decoded, context_length));
}

Result<OfflineReport> bench_offline(runner::ForwardPass& pass, const OfflineOptions& options) {
  OfflineReport report;
  std::optional<device::ThreadPool> all_ranks;  // as many threads as all ranks have together
  std::optional<ops::CpuContext> cpu;
  std::optional<ops::ReadProbe> probe;
  if (device::ThreadPool* pool = pass.compute().pool()) {
    if (pass.num_ranks() > 1) {
      pool = &all_ranks.emplace(pool->num_threads() * static_cast<int>(pass.num_ranks()));
    }
    cpu.emplace(*pool);
    report.roofline = ops::measure_roofline(*cpu);
  }
  for (const int64_t count : options.prefill_tokens) {
    HEDDLE_ASSIGN_OR_RETURN(OfflineRow row, bench_prefill(pass, options, count));
    report.rows.push_back(std::move(row));
  }
  if (cpu && !options.decode_batches.empty()) probe.emplace(*cpu);
  for (const int64_t batch : options.decode_batches) {
    std::vector<int64_t> rows_each = {1};
    rows_each.insert(rows_each.end(), options.verify_rows.begin(), options.verify_rows.end());
    for (const int64_t rows : rows_each) {
      HEDDLE_ASSIGN_OR_RETURN(OfflineRow row,
                              bench_decode(pass, options, batch, rows, probe ? &*probe : nullptr));
      report.rows.push_back(std::move(row));
    }
  }
  return report;
}

}  // namespace heddle::tools
