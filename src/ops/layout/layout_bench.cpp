// SPDX-License-Identifier: Apache-2.0
// The copies that are left of latent attention's columns and of the rows that get logits.
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "ops/benchmark/op_benchmark.h"
#include "ops/registry.h"

namespace heddle::ops {

namespace {

struct LayoutLoad {
  const char* op;
  std::string shape;
  std::vector<Shape> inputs;
  Shape output;
  Attrs attrs = {};
  std::vector<int32_t> logit_rows = {};
};

struct LayoutData {
  explicit LayoutData(const LayoutLoad& load) : output(load.output, DType::kF32) {
    for (const Shape& shape : load.inputs) {
      inputs.emplace_back(shape, DType::kF32);
      views.push_back(inputs.back().view());
    }
  }

  std::vector<Tensor> inputs;
  std::vector<TensorView> views;
  Tensor output;
};

// Launches the op through its OpDef, as a program does: layout ops have no other form.
OpBenchmark layout_benchmark(CpuContext& context, LayoutLoad load) {
  const OpDef* const op = builtin_ops().find(load.op);
  HEDDLE_CHECK(op != nullptr);
  const auto num_ids = static_cast<int64_t>(load.logit_rows.size());
  const auto data = std::make_shared<std::unique_ptr<LayoutData>>();
  return {.name = load.op,
          .shape = load.shape,
          .bytes = static_cast<double>(4 * (2 * load.output.num_elements() + num_ids)),
          .flops = 0,
          .run = [&context, op, data, load = std::move(load)] {
            if (*data == nullptr) *data = std::make_unique<LayoutData>(load);
            const MutableTensorView output = (*data)->output.view();
            ForwardContext forward;
            forward.logit_rows = load.logit_rows;
            const Status status = op->launch(context, {.inputs = (*data)->views,
                                                       .outputs = {&output, 1},
                                                       .attrs = load.attrs,
                                                       .forward = forward,
                                                       .workspace = {}});
            HEDDLE_CHECK(status.ok());
          }};
}

// The latents in a projection of queries, latents and rotary keys; latents beside rotary keys.
LayoutLoad columns_load(int64_t T) {
  constexpr int64_t kAllColumns = 3648;
  return {.op = "columns",
          .shape = fmt::format("T {}, 512 of {} columns", T, kAllColumns),
          .inputs = {Shape{T, kAllColumns}},
          .output = Shape{T, 512},
          .attrs = {{"start", 3072.0}, {"width", 512.0}}};
}

LayoutLoad concat_load(int64_t T) {
  return {.op = "concat",
          .shape = fmt::format("T {}, 512 and 64 columns", T),
          .inputs = {Shape{T, 512}, Shape{T, 64}},
          .output = Shape{T, 576}};
}

// The merged cells of a picture's patches.
LayoutLoad join_rows_load(int64_t T) {
  constexpr int64_t kHidden = 1152;
  return {.op = "join_rows",
          .shape = fmt::format("{} rows by four, H {}", 4 * T, kHidden),
          .inputs = {Shape{4 * T, kHidden}},
          .output = Shape{T, 4 * kHidden},
          .attrs = {{"count", 4.0}}};
}

// The last row of each of `num_sequences` equal parts of the step.
LayoutLoad logit_rows_load(int64_t T, int64_t num_sequences) {
  constexpr int64_t kHidden = 2048;
  std::vector<int32_t> rows;
  for (int64_t b = 1; b <= num_sequences; ++b) {
    rows.push_back(static_cast<int32_t>(b * T / num_sequences - 1));
  }
  return {.op = "logit_rows",
          .shape = fmt::format("{} of {} rows, H {}", num_sequences, T, kHidden),
          .inputs = {Shape{T, kHidden}},
          .output = Shape{num_sequences, kHidden},
          .logit_rows = std::move(rows)};
}

}  // namespace

std::vector<OpBenchmark> layout_benchmarks(CpuContext& context) {
  std::vector<OpBenchmark> benchmarks;
  for (const int64_t T : {1, 16, 512}) {
    benchmarks.push_back(layout_benchmark(context, columns_load(T)));
    benchmarks.push_back(layout_benchmark(context, concat_load(T)));
    benchmarks.push_back(layout_benchmark(context, join_rows_load(T)));
  }
  benchmarks.push_back(layout_benchmark(context, logit_rows_load(16, 16)));
  benchmarks.push_back(layout_benchmark(context, logit_rows_load(512, 4)));
  return benchmarks;
}

}  // namespace heddle::ops
