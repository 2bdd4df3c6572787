// SPDX-License-Identifier: Apache-2.0
// Causal prefill from nothing, and decode at a context of 4096, with 4 and 8 query heads of 128;
// the same over latent rows and with sinks, at the widths of models that have them.
#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "ops/attention/paged_attention.h"
#include "ops/benchmark/benchmark_data.h"
#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

namespace {

constexpr int64_t kPageSize = 16;

// `B` sequences of a pool of `num_sequences`, taken in turn so that decode finds its pages in
// memory.
struct AttentionLoad {
  int64_t Nq = 0;
  int64_t Nkv = 2;
  int64_t D = 128;
  int64_t Dv = 128;
  bool is_latent = false;  // values are the first Dv channels of the keys
  bool has_sinks = false;
  bool reads_alone = false;  // keys and values are in the pages already
  int64_t B = 1;
  int64_t context_len = 0;
  int64_t num_rows = 0;
  int64_t num_sequences = 1;
  int64_t window = 0;
  DType dtype = DType::kF32;

  // Numbers stored in the cache per token.
  [[nodiscard]] int64_t kv_width() const { return Nkv * (is_latent ? D : D + Dv); }

  [[nodiscard]] const char* op() const {
    if (is_latent) return "latent_attention";
    if (reads_alone) return "attention_to_pages";
    return has_sinks ? "paged_attention_sinks" : "paged_attention";
  }
};

class AttentionRun {
 public:
  AttentionRun(CpuContext& context, const AttentionLoad& load) : context_(context), load_(load) {
    const int64_t T = load.B * load.num_rows;
    width_ = (load.context_len + load.num_rows + kPageSize - 1) / kPageSize;
    const int64_t num_pages = width_ * load.num_sequences + 1;
    q_ = noise_tensor({T, load.Nq * load.D});
    k_ = noise_tensor({T, load.Nkv * load.D});
    y_ = Tensor({T, load.Nq * load.Dv}, DType::kF32);
    k_pages_ =
        Tensor({num_pages, kPageSize, load.Nkv, load.D}, load.dtype);  // zeros: scores are equal
    if (!load.is_latent) {
      v_ = noise_tensor({T, load.Nkv * load.Dv});
      v_pages_ = Tensor({num_pages, kPageSize, load.Nkv, load.Dv}, load.dtype);
    }
    if (load.has_sinks) sinks_ = noise_tensor({load.Nq});
    pages_.resize(static_cast<size_t>(num_pages - 1));
    std::iota(pages_.begin(), pages_.end(), 1);
    std::mt19937 random(1);
    std::shuffle(pages_.begin(), pages_.end(), random);
    for (int64_t b = 0; b <= load.B; ++b) {
      query_start_.push_back(static_cast<int32_t>(b * load.num_rows));
    }
    context_lens_.assign(static_cast<size_t>(load.B), static_cast<int32_t>(load.context_len));
    workspace_.resize(
        static_cast<size_t>(paged_attention_workspace_bytes(context, T, load.D, load.Dv)));
    forward_.query_start = query_start_;
    forward_.context_lens = context_lens_;
    forward_.page_table_width = width_;
    forward_.page_size = static_cast<int32_t>(kPageSize);
  }

  void run() {
    next_ = next_ + load_.B <= load_.num_sequences ? next_ : 0;
    forward_.page_tables[0] = std::span(pages_).subspan(static_cast<size_t>(next_ * width_),
                                                        static_cast<size_t>(load_.B * width_));
    next_ += load_.B;
    const Status status =
        paged_attention(context_, {.q = q_.view(),
                                   .k = load_.reads_alone ? TensorView() : k_.view(),
                                   .v = load_.reads_alone ? TensorView() : v_.view(),
                                   .y = y_.view(),
                                   .num_kv_heads = load_.Nkv,
                                   .head_dim = load_.D,
                                   .value_dim = load_.Dv,
                                   .scale = 0.088f,
                                   .window = load_.window,
                                   .sinks = sinks_.view(),
                                   .kv = {k_pages_.view(), v_pages_.view()},
                                   .forward = &forward_,
                                   .workspace = workspace_});
    HEDDLE_CHECK(status.ok());
  }

 private:
  CpuContext& context_;
  AttentionLoad load_;
  Tensor q_, k_, v_, y_, sinks_, k_pages_, v_pages_;
  std::vector<int32_t> pages_, query_start_, context_lens_;
  int64_t width_ = 0;
  int64_t next_ = 0;
  ForwardContext forward_;
  std::vector<std::byte> workspace_;
};

OpBenchmark attention_benchmark(CpuContext& context, const AttentionLoad& load) {
  const auto rows = static_cast<double>(load.num_rows), B = static_cast<double>(load.B);
  const auto before = static_cast<double>(
      load.window > 0 ? std::min(load.context_len, load.window - 1) : load.context_len);
  double pairs = 0;
  for (int64_t row = 0; row < load.num_rows; ++row) {
    const int64_t seen = load.context_len + row + 1;
    pairs += B * static_cast<double>(load.window > 0 ? std::min(seen, load.window) : seen);
  }
  const double kv_bytes =
      B * (before + rows) * static_cast<double>(bytes_of(load.dtype, load.kv_width()));
  // q, y and, where they are appended, k and v.
  const int64_t row_width = load.Nq * (load.D + load.Dv) + (load.reads_alone ? 0 : load.kv_width());
  const auto data = std::make_shared<std::unique_ptr<AttentionRun>>();
  return {.name = load.op(),
          .shape = fmt::format("B {}, rows {}, context {}, Nq {}, Nkv {}, D {}{}, {}{}", load.B,
                               load.num_rows, load.context_len, load.Nq, load.Nkv, load.D,
                               load.Dv != load.D ? fmt::format(", Dv {}", load.Dv) : "",
                               to_string(load.dtype),
                               load.window > 0 ? fmt::format(", window {}", load.window) : ""),
          .bytes = kv_bytes + B * rows * static_cast<double>(4 * row_width),
          .flops = 2 * pairs * static_cast<double>(load.Nq * (load.D + load.Dv)),
          .run = [&context, data, load] {
            if (*data == nullptr) *data = std::make_unique<AttentionRun>(context, load);
            (*data)->run();
          }};
}

}  // namespace

std::vector<OpBenchmark> attention_benchmarks(CpuContext& context) {
  std::vector<OpBenchmark> benchmarks;
  for (const int64_t Nq : {4, 8}) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3}) {
      for (const int64_t rows : {512, 4096}) {
        benchmarks.push_back(
            attention_benchmark(context, {.Nq = Nq, .num_rows = rows, .dtype = dtype}));
      }
      for (const int64_t B : {1, 8}) {
        benchmarks.push_back(attention_benchmark(context, {.Nq = Nq,
                                                           .B = B,
                                                           .context_len = 4095,
                                                           .num_rows = 1,
                                                           .num_sequences = 8,
                                                           .dtype = dtype}));
      }
    }
  }
  benchmarks.push_back(attention_benchmark(
      context, {.Nq = 8, .num_rows = 4096, .window = 128, .dtype = DType::kBf16}));
  benchmarks.push_back(attention_benchmark(context, {.Nq = 8,
                                                     .B = 8,
                                                     .context_len = 4095,
                                                     .num_rows = 1,
                                                     .num_sequences = 8,
                                                     .window = 128,
                                                     .dtype = DType::kBf16}));
  // DeepSeek-V2-Lite, gpt-oss-20b and the last layers of Gemma 4 E2B.
  const AttentionLoad latent{.Nq = 16, .Nkv = 1, .D = 576, .Dv = 512, .is_latent = true};
  AttentionLoad bf16_latent = latent;
  bf16_latent.dtype = DType::kBf16;
  const AttentionLoad with_sinks{
      .Nq = 64, .Nkv = 8, .D = 64, .Dv = 64, .has_sinks = true, .dtype = DType::kBf16};
  const AttentionLoad alone{
      .Nq = 8, .Nkv = 1, .D = 256, .Dv = 256, .reads_alone = true, .dtype = DType::kBf16};
  for (AttentionLoad load : {latent, bf16_latent, with_sinks, alone}) {
    load.num_rows = 512;
    benchmarks.push_back(attention_benchmark(context, load));
    load.num_rows = 1;
    load.context_len = 4095;
    load.num_sequences = 8;
    for (const int64_t B : {1, 8}) {
      load.B = B;
      benchmarks.push_back(attention_benchmark(context, load));
    }
  }
  return benchmarks;
}

}  // namespace heddle::ops
