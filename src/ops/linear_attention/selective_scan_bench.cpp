// SPDX-License-Identifier: Apache-2.0
// The selective scan of a Jamba Mini layer and of a small one, prefill and decode.
#include <memory>

#include <fmt/format.h>

#include "ops/benchmark/benchmark_data.h"
#include "ops/benchmark/op_benchmark.h"
#include "ops/linear_attention/selective_scan.h"

namespace heddle::ops {

namespace {

struct ScanLoad {
  int64_t C = 0, N = 0, B = 1, num_rows = 1;
};

// A layer with the states of 64 sequences, taken in turn so that decode finds its states in memory.
class ScanRun {
 public:
  static constexpr int64_t kSlots = 65;

  ScanRun(CpuContext& context, const ScanLoad& load) : context_(context) {
    const int64_t T = load.B * load.num_rows;
    x_ = noise_tensor({T, load.C});
    dt_ = noise_tensor({T, load.C});
    z_ = noise_tensor({T, load.C});
    b_ = noise_tensor({T, load.N});
    c_ = noise_tensor({T, load.N});
    per_channel_ = noise_tensor({load.C});
    y_ = Tensor({T, load.C}, DType::kF32);
    decay_ = Tensor({load.C, load.N}, DType::kF32);
    for (float& value : decay_.span<float>()) value = -0.5f;
    states_ = Tensor({kSlots, 1, load.C, load.N}, DType::kF32);
    slots_.resize(static_cast<size_t>(load.B));
    context_lens_.assign(slots_.size(), 1);
    for (int64_t b = 0; b <= load.B; ++b) {
      query_start_.push_back(static_cast<int32_t>(b * load.num_rows));
    }
    forward_.query_start = query_start_;
    forward_.context_lens = context_lens_;
    forward_.state_slots = slots_;
  }

  void run() {
    for (int32_t& slot : slots_) slot = 1 + static_cast<int32_t>(next_++ % (kSlots - 1));
    const Status status = selective_scan(context_, {.x = x_.view(),
                                                    .dt = dt_.view(),
                                                    .b = b_.view(),
                                                    .c = c_.view(),
                                                    .z = z_.view(),
                                                    .neg_exp_a_log = decay_.view(),
                                                    .dt_bias = per_channel_.view(),
                                                    .skip = per_channel_.view(),
                                                    .y = y_.view(),
                                                    .state = {{}, states_.view()},
                                                    .forward = &forward_});
    HEDDLE_CHECK(status.ok());
  }

 private:
  CpuContext& context_;
  int64_t next_ = 0;
  Tensor x_, dt_, z_, b_, c_, per_channel_, y_, decay_, states_;
  std::vector<int32_t> slots_, context_lens_, query_start_;
  ForwardContext forward_;
};

}  // namespace

std::vector<OpBenchmark> selective_scan_benchmarks(CpuContext& context) {
  std::vector<OpBenchmark> benchmarks;
  for (const ScanLoad load :
       {ScanLoad{.C = 8192, .N = 16}, ScanLoad{.C = 8192, .N = 16, .num_rows = 256},
        ScanLoad{.C = 2048, .N = 16, .B = 16}}) {
    const auto data = std::make_shared<std::unique_ptr<ScanRun>>();
    const auto T = static_cast<double>(load.B * load.num_rows);
    const auto C = static_cast<double>(load.C), N = static_cast<double>(load.N);
    benchmarks.push_back(
        {.name = "selective_scan",
         .shape = fmt::format("B {}, rows {}, C {}, N {}", load.B, load.num_rows, load.C, load.N),
         .bytes = 8 * C * N * static_cast<double>(load.B) + 4 * C * N + T * (16 * C + 8 * N),
         .flops = 6 * T * C * N,  // and an exponential for each
         .run = [&context, load, data] {
           if (*data == nullptr) *data = std::make_unique<ScanRun>(context, load);
           (*data)->run();
         }});
  }
  return benchmarks;
}

}  // namespace heddle::ops
