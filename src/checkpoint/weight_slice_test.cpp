// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_slice.h"

#include <random>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/dummy_weights.h"
#include "checkpoint/gguf_fixture.h"
#include "checkpoint/gguf_weights.h"
#include "checkpoint/interleaved_rows.h"
#include "checkpoint/weight_slice_fixture.h"
#include "device/cpu_device.h"
#include "quant/block_fixture.h"

namespace heddle::checkpoint {
namespace {

using testing::check_slices;
using ::testing::ElementsAre;
using testing::fault_of_join;
using ::testing::HasSubstr;
using testing::numbers_of;

constexpr int64_t kSliceRows = 144;
constexpr int64_t kSliceColumns = 384;
constexpr int64_t kBlockColumns = 768;  // three blocks of the largest size

WeightCut slice_cut(CutKind kind, std::vector<CutPart> parts) {
  return {.kind = kind, .parts = std::move(parts)};
}

// The same module cut by rows and cut by columns. Each of four ranks gets 96 of them.
std::vector<WeightSpec> both_ways(const std::string& tensor, const Shape& shape) {
  const bool experts = shape.rank() == 3;
  std::vector<WeightSpec> specs;
  for (const CutKind kind : {CutKind::kRows, CutKind::kColumns}) {
    const bool rows = kind == CutKind::kRows;
    WeightCut cut = slice_cut(kind, {{shape[shape.rank() - (rows ? 2 : 1)]}});
    if (experts) cut = {CutKind::kWholeExperts, cut.parts, kind};
    specs.push_back({.name = rows ? "rows" : "columns",
                     .shape = shape,
                     .alternatives = {whole({tensor, shape})},
                     .cut = std::move(cut)});
  }
  return specs;
}

// A tensor of a file, with random bytes.
struct RandomTensor {
  std::string name;
  Shape shape;
  DType dtype;
};

Tensor random_tensor(const RandomTensor& wanted, uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensor tensor(wanted.shape, wanted.dtype);
  const auto below = [&](uint64_t limit) { return static_cast<int32_t>(random() % limit); };
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const auto index = static_cast<size_t>(i);
    switch (wanted.dtype) {
      case DType::kF32:
        tensor.span<float>()[index] = static_cast<float>(1 + below(1000)) * 0.001f;
        break;
      case DType::kF16:
        tensor.span<F16>()[index] = to_f16(static_cast<float>(1 + below(1000)) * 0.001f);
        break;
      case DType::kBf16:
        tensor.span<Bf16>()[index] = to_bf16(static_cast<float>(below(1000) - 500) * 0.001f);
        break;
      case DType::kF8E4M3:
        tensor.span<uint8_t>()[index] = static_cast<uint8_t>(below(127));
        break;
      case DType::kI8:
        tensor.span<int8_t>()[index] = static_cast<int8_t>(below(256));
        break;
      case DType::kU8:  // some bytes are exponents of powers of two: finite ones only
        tensor.span<uint8_t>()[index] = static_cast<uint8_t>(100 + below(50));
        break;
      default:
        tensor.span<int32_t>()[index] = static_cast<int32_t>(random());
    }
    // GPTQ's g_idx gives the group of each column, in an order other than the columns'.
    if (wanted.name.ends_with("g_idx")) {
      tensor.span<int32_t>()[index] = static_cast<int32_t>(i * 5 % kSliceColumns / 128);
    }
  }
  return tensor;
}

struct StoredFormat {
  const char* name;
  const char* config;
  std::vector<RandomTensor> tensors;
  bool experts = false;
};

std::vector<StoredFormat> stored_formats() {
  constexpr int64_t N = kSliceRows;
  constexpr int64_t K = kSliceColumns;
  constexpr const char* kGptq =
      R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true, "sym": false})";
  constexpr const char* kFp8 = R"({"quant_method": "fp8", "weight_block_size": [128, 128]})";
  constexpr const char* kPacked =
      R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
          "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
              "num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}}}})";
  constexpr const char* kNvfp4 = R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})";
  constexpr const char* kMxfp4 =
      R"({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
          "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
              "num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}}}})";
  const std::vector<RandomTensor> gptq = {{"m.qweight", {K / 8, N}, DType::kI32},
                                          {"m.qzeros", {K / 128, N / 8}, DType::kI32},
                                          {"m.scales", {K / 128, N}, DType::kF16}};
  std::vector<RandomTensor> ordered = gptq;
  ordered.push_back({"m.g_idx", {K}, DType::kI32});
  return {
      {"plain", nullptr, {{"m.weight", {N, K}, DType::kBf16}}},
      {"awq",
       R"({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true})",
       {{"m.qweight", {K, N / 8}, DType::kI32},
        {"m.qzeros", {K / 128, N / 8}, DType::kI32},
        {"m.scales", {K / 128, N}, DType::kF16}}},
      {"gptq", kGptq, gptq},
      {"gptq in activation order", kGptq, ordered},
      {"compressed-tensors",
       kPacked,
       {{"m.weight_packed", {N, K / 8}, DType::kI32},
        {"m.weight_scale", {N, K / 128}, DType::kBf16}}},
      {"fp8 in blocks",
       kFp8,
       {{"m.weight", {N, K}, DType::kF8E4M3}, {"m.weight_scale_inv", {2, 3}, DType::kF32}}},
      {"fp8 in blocks, powers of two",
       kFp8,
       {{"m.weight", {N, K}, DType::kF8E4M3}, {"m.weight_scale_inv", {2, 3}, DType::kU8}}},
      {"fp8 experts in blocks",
       kFp8,
       {{"mlp.experts.m", {3, N / 3, K}, DType::kF8E4M3},
        {"mlp.experts.m_scale_inv", {3, 1, 3}, DType::kF32}},
       true},
      {"fp8 by rows",
       R"({"quant_method": "fp8"})",
       {{"m.weight", {N, K}, DType::kF8E4M3}, {"m.weight_scale", {N, 1}, DType::kF32}}},
      {"int8",
       R"({"quant_method": "w8a8_int8"})",
       {{"m.weight", {N, K}, DType::kI8}, {"m.weight_scale", {N, 1}, DType::kF32}}},
      {"mxfp4",
       kMxfp4,
       {{"m.weight_packed", {N, K / 2}, DType::kU8}, {"m.weight_scale", {N, K / 32}, DType::kU8}}},
      {"nvfp4",
       kNvfp4,
       {{"m.weight", {N, K / 2}, DType::kU8},
        {"m.weight_scale", {N, K / 16}, DType::kF8E4M3},
        {"m.weight_scale_2", {}, DType::kF32}}},
  };
}

// Checks the slices on the host and on a device, and that bytes_to_load() gives the size in memory.
void expect_slices(const std::vector<WeightSpec>& specs,
                   const std::function<std::unique_ptr<const WeightSource>()>& source,
                   const LoadOptions& options) {
  device::CpuDevice device(1);
  for (const bool on_device : {false, true}) {
    LoadOptions own = options;
    own.num_threads = 1;
    if (on_device) own.device = &device;
    const auto load = [&](std::span<const WeightSpec> wanted) {
      Result<LoadedWeights> loaded = load_weights(source(), wanted, own);
      EXPECT_EQ(bytes_to_load(*source(), wanted, own).value(), loaded->bytes_copied());
      return loaded;
    };
    ::testing::internal::CaptureStderr();
    EXPECT_THAT(check_slices(specs, load, /*exact=*/false), ElementsAre(2, 3, 4, 6, 8));
    ::testing::internal::GetCapturedStderr();
  }
}

TEST(WeightSlice, SlicesOfEveryFormatJoin) {
  for (const StoredFormat& format : stored_formats()) {
    SCOPED_TRACE(format.name);
    std::vector<Tensor> tensors;
    std::vector<NamedTensor> named;
    for (const RandomTensor& wanted : format.tensors) {
      tensors.push_back(random_tensor(wanted, tensors.size()));
      named.push_back({wanted.name, tensors.back().view()});
    }
    const testing::TemporaryFolder folder;
    ASSERT_TRUE(write_safetensors(folder.path() / "model.safetensors", named).ok());
    std::optional<QuantizationConfig> config;
    if (format.config != nullptr) {
      config = parse_quantization_config(nlohmann::json::parse(format.config)).value();
    }
    const auto source = [&] {
      return std::make_unique<const CheckpointFiles>(CheckpointFiles::open(folder.path()).value());
    };
    const Shape shape =
        format.experts ? Shape{3, kSliceRows / 3, kSliceColumns} : Shape{kSliceRows, kSliceColumns};
    expect_slices(both_ways(format.experts ? "mlp.experts.m" : "m.weight", shape), source,
                  {.dtype = DType::kF32, .quantization = config ? &*config : nullptr});
  }
}

TEST(WeightSlice, SlicesOfEveryBlockTypeJoin) {
  for (const quant::BlockType type : quant::testing::kBlockTypes) {
    uint32_t id = 0;
    while (find_gguf_type(id) == nullptr || find_gguf_type(id)->blocks != type) ++id;
    SCOPED_TRACE(find_gguf_type(id)->name);
    const Shape shape{48, kBlockColumns};
    testing::GgufWriter writer;
    writer.tensor("w", shape, id,
                  quant::testing::random_blocks(
                      type, shape.num_elements() / quant::size_of(type).columns, id));
    const testing::TemporaryFolder folder;
    const auto path = folder.write("m.gguf", writer.file());
    const auto source = [&] {
      return std::make_unique<const GgufWeights>(
          GgufWeights::create(GgufModel::open(path).value(),
                              {{.hub = "m.weight", .stored = "w", .shape = shape}})
              .value());
    };
    expect_slices(both_ways("m.weight", shape), source, {.dtype = DType::kF32});
  }
}

// A rank has the codes and scales that a single rank would have: blocks and groups are those of the
// whole weight.
TEST(WeightSlice, SlicesOfWeightsThatAreQuantisedAtLoadJoin) {
  std::vector<WeightSpec> specs = both_ways("m_proj.weight", {kSliceRows, kSliceColumns});
  // The first spec has rows in another order. The second has every second row, then the others.
  specs.push_back({.name = "moved",
                   .shape = {kSliceRows, kSliceColumns},
                   .alternatives = {permuted({"n_proj.weight", {kSliceRows, kSliceColumns}},
                                             {{.source_row = 10, .num_rows = kSliceRows - 10},
                                              {.target_row = kSliceRows - 10, .num_rows = 10}})},
                   .cut = slice_cut(CutKind::kRows, {{kSliceRows}})});
  specs.push_back({.name = "halves",
                   .shape = {kSliceRows, kSliceColumns},
                   .alternatives = {permuted({"o_proj.weight", {kSliceRows, kSliceColumns}},
                                             {{.num_rows = kSliceRows / 2, .source_step = 2},
                                              {.source_row = 1,
                                               .target_row = kSliceRows / 2,
                                               .num_rows = kSliceRows / 2,
                                               .source_step = 2}})},
                   .cut = slice_cut(CutKind::kRows, {{kSliceRows / 2}, {kSliceRows / 2}})});
  // Two sources: a file, whose numbers are rounded at load, and DummyWeights, which draws codes.
  const testing::TemporaryFolder folder;
  std::vector<Tensor> tensors;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    tensors.push_back(random_tensor({"", {kSliceRows, kSliceColumns}, DType::kBf16}, seed));
  }
  const std::vector<NamedTensor> named = {{"m_proj.weight", tensors[0].view()},
                                          {"n_proj.weight", tensors[1].view()},
                                          {"o_proj.weight", tensors[2].view()}};
  ASSERT_TRUE(write_safetensors(folder.path() / "model.safetensors", named).ok());
  for (const auto scheme : {quant::Scheme::kInt4, quant::Scheme::kInt8, quant::Scheme::kFp8,
                            quant::Scheme::kFp8Block, quant::Scheme::kMxfp4}) {
    SCOPED_TRACE(static_cast<int>(scheme));
    const LoadOptions options{.dtype = DType::kBf16, .rounding = Rounding{.scheme = scheme}};
    expect_slices(
        specs,
        [&] {
          return std::make_unique<const CheckpointFiles>(
              CheckpointFiles::open(folder.path()).value());
        },
        options);
    expect_slices(specs, [] { return std::make_unique<const DummyWeights>(1); }, options);
  }
}

// Covers stacked, interleaved and transposed tensors, vectors, and experts that are cut whole or by
// their width.
std::vector<WeightSpec> specs_of_every_kind() {
  constexpr int64_t E = 6;
  constexpr int64_t I = 16;
  constexpr int64_t H = 48;
  const WeightCut by_width{CutKind::kWholeExperts, {{I}, {I}}, CutKind::kRows};
  HubPiece transposed{.tensor = {"down", {E, I, H}}, .form = RowForm::kInputMajor};
  for (int64_t e = 0; e < E; ++e) transposed.runs.push_back({e * H, e * H, H});
  return {
      {.name = "w13",
       .shape = {E, 2 * I, H},
       .alternatives = {stacked(E, {{"e.#.gate", {I, H}}, {"e.#.up", {I, H}}})},
       .cut = by_width},
      {.name = "bias",
       .shape = {E, 2 * I},
       .alternatives = {{{.tensor = {"bias", {E, 2 * I}},
                          .runs = split_gate_up_rows(E, I),
                          .form = RowForm::kElement}}},
       .dtype = WeightDType::kF32,
       .cut = by_width},
      {.name = "w2",
       .shape = {E, H, I},
       .alternatives = {{transposed}},
       .cut = {CutKind::kWholeExperts, {{I}}, CutKind::kColumns}},
      {.name = "w2_bias",
       .shape = {E, H},
       .alternatives = {whole({"w2_bias", {E, H}})},
       .cut = {.kind = CutKind::kWholeExperts}},
      {.name = "conv",
       .shape = {144, 4},
       .alternatives = {concatenated({{"q", {48, 1, 4}}, {"k", {48, 1, 4}}, {"v", {48, 1, 4}}})},
       .dtype = WeightDType::kF32,
       .offset = 1,
       .cut = slice_cut(CutKind::kRows,
                        {{48, 8}, {48, 24, PartCut::kCopied}, {48, 1, PartCut::kWhole}})},
      {.name = "norm", .shape = {H}, .alternatives = {whole({"norm", {H}})}},
      {.name = "head",
       .shape = {200, H},
       .alternatives = {whole({"head", {200, H}})},
       .cut = slice_cut(CutKind::kRows, {{200, 64, PartCut::kRagged}})}};
}

TEST(WeightSlice, SlicesOfEveryKindOfTensorJoin) {
  const std::vector<WeightSpec> specs = specs_of_every_kind();
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const auto load = [&](std::span<const WeightSpec> wanted) {
      return load_weights(std::make_unique<DummyWeights>(1), wanted, {.dtype = dtype});
    };
    EXPECT_THAT(check_slices(specs, load, /*exact=*/false), ElementsAre(2, 6));
    EXPECT_THAT(check_slices(specs, load, /*exact=*/true), ElementsAre(2, 6));
  }
}

TEST(WeightSlice, ARankThatIsMissingOrWrongIsNoticed) {
  for (const WeightSpec& spec : specs_of_every_kind()) {
    SCOPED_TRACE(spec.name);
    const auto load = [&](const WeightSpec& wanted) {
      return numbers_of(load_weights(std::make_unique<DummyWeights>(1), std::vector{wanted},
                                     {.dtype = DType::kF32})
                            .value()[wanted.name]);
    };
    for (const bool exact : {false, true}) {
      const Ranks ranks{.count = 2, .exact = exact};
      std::vector<std::vector<float>> slices = {load(sliced(spec, 0, ranks).value()),
                                                load(sliced(spec, 1, ranks).value())};
      EXPECT_EQ(fault_of_join(spec, ranks, load(spec), slices), "");
      const std::vector<float> first = slices[0];
      slices[0].clear();
      EXPECT_NE(fault_of_join(spec, ranks, load(spec), slices), "");
      slices = {first, first};
      EXPECT_EQ(fault_of_join(spec, ranks, load(spec), slices).empty(), spec.name == "norm");
    }
  }
}

TEST(WeightSlice, NamesTheWeightThatRanksDoNotDivide) {
  const std::vector<WeightSpec> specs = specs_of_every_kind();
  const std::vector<Status> legal = legal_ranks(specs, /*exact=*/false);
  ASSERT_EQ(std::ssize(legal), kMaxRanks);
  EXPECT_TRUE(legal[0].ok());
  EXPECT_THAT(legal[2].message(),
              HasSubstr("conv: 48 rows or columns have 2 units of 24, which 3"));
  EXPECT_THAT(legal[4].message(), HasSubstr("w13: 16 rows or columns have 16 units of 1, which 5"));
  EXPECT_THAT(legal[5].message(), HasSubstr(" leave nothing for the last of 6 ranks"));
  EXPECT_EQ(sliced(specs, 0, {.count = 5}).status().message(), legal[4].message());
}

// Every rank looks for every tensor of the model, so that all ranks report the same fault.
TEST(WeightSlice, EveryRankReportsTheSameMissingAndUnexpectedTensors) {
  const testing::TemporaryFolder folder;
  const Tensor matrix({4, 8}, DType::kBf16);
  const auto write = [&](int64_t count) {
    std::vector<NamedTensor> named;
    for (int64_t e = 0; e < count; ++e) named.push_back({fmt::format("e.{}.up", e), matrix.view()});
    return write_safetensors(folder.path() / "model.safetensors", named);
  };
  const WeightSpec spec{.name = "w",
                        .shape = {4, 4, 8},
                        .alternatives = {stacked(4, {{"e.#.up", {4, 8}}})},
                        .cut = {.kind = CutKind::kWholeExperts}};
  for (const int64_t count : {4, 3, 5}) {
    ASSERT_TRUE(write(count).ok());
    for (int64_t rank = 0; rank < 2; ++rank) {
      const auto loaded = load_weights(
          std::make_unique<CheckpointFiles>(CheckpointFiles::open(folder.path()).value()),
          std::vector{sliced(spec, rank, {.count = 2}).value()});
      EXPECT_EQ(loaded.ok(), count == 4);
      const char* const fault = count == 3 ? "1 missing: e.3.up" : count == 5 ? "1 unexpected" : "";
      EXPECT_THAT(loaded.status().message(), HasSubstr(fault));
    }
  }
}

}  // namespace
}  // namespace heddle::checkpoint
