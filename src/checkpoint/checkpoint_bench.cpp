// SPDX-License-Identifier: Apache-2.0
// The cost of loading: converting, drawing dummy weights, reading a large header, a whole small
// model.
#include <cstring>
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/convert.h"
#include "checkpoint/dummy_weights.h"
#include "checkpoint/load_weights.h"

namespace heddle::checkpoint {
namespace {

void bench_convert(benchmark::State& state, DType from, DType to) {
  constexpr int64_t kElements = int64_t{1} << 22;
  std::vector<std::byte> source(static_cast<size_t>(bytes_of(from, kElements)));
  std::vector<std::byte> target(static_cast<size_t>(bytes_of(to, kElements)));
  for (auto _ : state) {
    convert_elements(source.data(), from, target.data(), to, kElements);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() *
                          (bytes_of(from, kElements) + bytes_of(to, kElements)));
}

BENCHMARK_CAPTURE(bench_convert, f32_to_bf16, DType::kF32, DType::kBf16);
BENCHMARK_CAPTURE(bench_convert, bf16_to_f32, DType::kBf16, DType::kF32);
BENCHMARK_CAPTURE(bench_convert, f32_to_f16, DType::kF32, DType::kF16);
BENCHMARK_CAPTURE(bench_convert, f16_to_f32, DType::kF16, DType::kF32);
BENCHMARK_CAPTURE(bench_convert, bf16_to_f16, DType::kBf16, DType::kF16);

void bench_draw(benchmark::State& state) {
  constexpr int64_t kElements = int64_t{1} << 22;
  const DummyWeights weights(1);
  const StoredWeight weight = *weights.find({.name = "w", .shape = {kElements}});
  std::vector<Bf16> target(kElements);
  for (auto _ : state) {
    weights.read(weight, 0, kElements, DType::kBf16, target.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kElements);
}

BENCHMARK(bench_draw);

void bench_load_dummy(benchmark::State& state) {
  const Shape shape{state.range(0), 1 << 20};
  const std::vector<WeightSpec> specs = {
      {.name = "w", .shape = shape, .alternatives = {whole({"w", shape})}}};
  for (auto _ : state) {
    benchmark::DoNotOptimize(load_weights(std::make_unique<DummyWeights>(5), specs).ok());
  }
  state.SetItemsProcessed(state.iterations() * shape.num_elements());
}

BENCHMARK(bench_load_dummy)->Arg(1024)->Unit(benchmark::kMillisecond)->UseRealTime();

// As many tensors as the largest published checkpoint of the family has.
void bench_header(benchmark::State& state) {
  constexpr int kTensors = 76000;
  std::string text = "{";
  for (int i = 0; i < kTensors; ++i) {
    text += fmt::format(
        R"("model.layers.{}.mlp.experts.{}.gate_proj.weight":{{"dtype":"U8","shape":[1,1],)"
        R"("data_offsets":[{},{}]}},)",
        i / 1600, i % 1600, i, i + 1);
  }
  text.back() = '}';
  std::vector<std::byte> file(8 + text.size());
  const uint64_t length = text.size();
  std::memcpy(file.data(), &length, sizeof(length));
  std::memcpy(file.data() + sizeof(length), text.data(), text.size());
  for (auto _ : state) {
    const auto size = static_cast<int64_t>(file.size()) + kTensors;
    if (!parse_safetensors_header(file, size).ok()) state.SkipWithError("not parsed");
  }
}

BENCHMARK(bench_header)->Unit(benchmark::kMillisecond);

// Run in the repository's root.
void bench_load_model(benchmark::State& state) {
  for (auto _ : state) {
    Result<CheckpointFiles> files = CheckpointFiles::open("models/heddle-tiny");
    if (!files.ok()) return state.SkipWithError("models/heddle-tiny is not here");
    std::vector<WeightSpec> specs;
    for (const std::string_view name : files->names()) {
      const TensorEntry& entry = *files->entry(name);
      specs.push_back({.name = entry.name,
                       .shape = entry.shape,
                       .alternatives = {whole({entry.name, entry.shape})}});
    }
    const Result<LoadedWeights> loaded =
        load_weights(std::make_unique<CheckpointFiles>(std::move(files).value()), specs,
                     {.copy_to_huge_pages = state.range(0) != 0});
    if (!loaded.ok()) return state.SkipWithError("not loaded");
  }
}

BENCHMARK(bench_load_model)
    ->ArgName("copy")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace heddle::checkpoint
