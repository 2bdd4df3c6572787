// SPDX-License-Identifier: Apache-2.0
// A program with chains computes what it computes without them: the search and the memory plan on
// the CPU with a chain made for it, those of CUDA on a GPU.
#include "graph/chains.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/dtype.h"
#include "device/cpu_device.h"
#include "graph/graph_fixture.h"
#include "graph/program.h"
#include "ops/device_fixture.h"
#include "ops/elementwise/elementwise.h"
#include "support/tensors.h"

namespace heddle::graph {

namespace {

using heddle::testing::converted;
using heddle::testing::random_tensor;
using heddle::testing::same_bits;
using testing::rows;

// sigmoid -> add, where the sigmoid is the first term: reads what both read, writes the sum alone.
// For an even number of rows.
Result<bool> launch_sigmoid_add(ops::Context& context, std::span<const ops::ChainedOp> chain) {
  const TensorView& a = chain[0].args.inputs[0];
  const TensorView& b = chain[1].args.inputs[1];
  const MutableTensorView& y = chain[1].args.outputs[0];
  if (a.shape[0] % 2 != 0) return false;
  for (int64_t t = 0; t < y.shape[0]; ++t) {  // poison first: y may be neither a nor b
    std::ranges::fill_n(y.row<float>(t), y.shape[1], std::numeric_limits<float>::quiet_NaN());
  }
  Tensor gate(a.shape, DType::kF32);
  HEDDLE_RETURN_IF_ERROR(ops::elementwise(
      context, {.kind = ops::ElementwiseKind::kSigmoid, .a = a, .y = gate.view()}));
  HEDDLE_RETURN_IF_ERROR(ops::elementwise(
      context, {.kind = ops::ElementwiseKind::kAdd, .a = gate.view(), .b = b, .y = y}));
  return true;
}

constexpr std::string_view kSigmoidAdd[] = {"sigmoid", "add"};
constexpr ops::OpChain::Link kFirstTerm[] = {{.from = 0, .to = 1, .input = 0}};
constexpr ops::OpChain kOwn[] = {
    {.ops = kSigmoidAdd, .links = kFirstTerm, .launch = launch_sigmoid_add}};

class ChainsTest : public ::testing::Test {
 protected:
  std::vector<float> run(const Graph& graph, std::span<const ops::OpChain> chains,
                         int64_t num_tokens, size_t* num_chains = nullptr) {
    Result<Program> program = compile(graph, testing::registry(), context_,
                                      {.largest = {.tokens = 16}, .chains = chains});
    EXPECT_TRUE(program.ok()) << program.status().to_string();
    EXPECT_TRUE(check_plan(program->placed, program->memory).ok());
    if (num_chains != nullptr) *num_chains = program->chains.size();
    Executor executor = Executor::create(std::move(program).value(), cpu_).value();
    EXPECT_TRUE(executor.poison(*cpu_.create_stream().value(), std::byte{0xff}).ok());
    std::vector<Tensor> inputs;
    std::vector<TensorView> views;
    for (const Value input : graph.inputs) {
      inputs.push_back(
          random_tensor({num_tokens, graph.info(input).meta[1].offset}, DType::kF32, input.id));
      views.push_back(inputs.back().view());
    }
    const Status status = executor.run(context_, {}, {.tokens = num_tokens}, views);
    EXPECT_TRUE(status.ok()) << status.to_string();
    const TensorView y = executor.output(0);
    return {y.as<float>(), y.as<float>() + y.num_elements()};
  }

  device::CpuDevice cpu_{1};
  ops::CpuContext context_{cpu_.pool()};
};

TEST_F(ChainsTest, AreFoundWhereTheirLinksAreTheirOwn) {
  const auto chains_of = [&](const auto& build) {
    testing::TestBuilder g;
    g.output(build(g), "y");
    const Graph graph = g.finish().value();
    return find_chains(graph, kOwn).size();
  };
  EXPECT_EQ(chains_of([](auto& g) { return g.add(g.sigmoid(g.x()), g.x()); }), 1u);
  EXPECT_EQ(chains_of([](auto& g) { return g.add(g.x(), g.sigmoid(g.x())); }), 0u)
      << "the other term";
  EXPECT_EQ(chains_of([](auto& g) {
              const Value gate = g.sigmoid(g.x());
              return g.add(gate, gate);
            }),
            0u)
      << "read twice";
  EXPECT_EQ(chains_of([](auto& g) {
              const Value gate = g.sigmoid(g.x());
              g.output(gate, "gate");
              return g.add(gate, g.x());
            }),
            0u)
      << "an output";
  EXPECT_EQ(chains_of([](auto& g) {
              const Value gate = g.sigmoid(g.x());
              const Value between = g.mul(g.x(), g.x());
              return g.add(gate, between);
            }),
            0u)
      << "an op between them";
}

TEST_F(ChainsTest, ComputeTheSameWhetherTakenOrDeclined) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    testing::TestBuilder g;
    std::vector<Value> values{g.x()};
    for (int i = 0; i < 12; ++i) {
      const auto any = [&] { return values[random() % values.size()]; };
      const Value a = any(), b = any();
      values.push_back(random() % 2 == 0 ? g.add(g.sigmoid(a), b) : g.mul(a, b));
    }
    g.output(values.back(), "y");
    const Graph graph = g.finish().value();
    for (const int64_t num_tokens : {5, 16}) {
      SCOPED_TRACE(fmt::format("seed {}, {} tokens", seed, num_tokens));
      EXPECT_EQ(run(graph, kOwn, num_tokens), run(graph, {}, num_tokens));
    }
  }
}

TEST_F(ChainsTest, FollowEachOther) {
  testing::TestBuilder g;
  Value x = g.x();
  for (int i = 0; i < 5; ++i) x = g.add(g.sigmoid(x), x);
  g.output(x, "y");
  const Graph graph = g.finish().value();
  size_t num_chains = 0;
  const std::vector<float> got = run(graph, kOwn, 8, &num_chains);
  EXPECT_EQ(num_chains, 5u);
  EXPECT_EQ(got, run(graph, {}, 8));
}

int64_t num_taken = 0;  // launches of counted chains that were not declined

// The chain of the device with these ops, counted.
Result<bool> launch_counted(ops::Context& context, std::span<const ops::ChainedOp> chain) {
  for (const ops::OpChain& known : ops::op_chains(context)) {
    const bool same = std::ranges::equal(known.ops, chain, {}, {},
                                         [](const ops::ChainedOp& op) { return op.op->name; });
    if (!same) continue;
    Result<bool> launched = known.launch(context, chain);
    num_taken += launched.ok() && *launched ? 1 : 0;
    return launched;
  }
  return not_found("no such chain");
}

// Chains of the device, against its ops one by one.
class DeviceChainsTest : public ops::DeviceTest {
 protected:
  // A weight or an input, random in +-scale.
  void add_tensor(const std::string& name, const Shape& shape, DType dtype, float scale) {
    Tensor tensor = random_tensor(shape, DType::kF32, tensors_.size() + 1);
    for (float& value : tensor.span<float>()) value *= scale;
    tensors_[name] = upload(converted(tensor.view(), dtype));
    views_[name] = tensors_[name].view();
  }

  [[nodiscard]] bool is_hopper() {
    return on_cuda() && static_cast<ops::CudaContext&>(context()).gpu.properties().major == 9;
  }

  GraphBuilder builder() {
    return {ops::builtin_ops(),
            [this](std::string_view name) -> const TensorView* {
              const auto found = views_.find(name);
              return found == views_.end() ? nullptr : &found->second;
            },
            DType::kBf16};
  }

  // An input of `num_tokens` rows.
  Value input(GraphBuilder& g, const std::string& name, int64_t num_tokens, int64_t width,
              DType dtype, float scale = 1) {
    add_tensor(name, {num_tokens, width}, dtype, scale);
    inputs_.push_back(views_[name]);
    return g.input(name, rows(width, dtype));
  }

  // The graph's outputs, after a check that the chain was found or was not asked for.
  std::vector<Tensor> compute_all(const Graph& graph, bool chained,
                                  const ops::ForwardContext& forward, int64_t num_tokens) {
    std::vector<ops::OpChain> counted;
    if (chained) {
      const std::span<const ops::OpChain> known = ops::op_chains(context());
      counted.assign(known.begin(), known.end());
      for (ops::OpChain& chain : counted) chain.launch = launch_counted;
    }
    const ops::Extents extents{.tokens = num_tokens,
                               .logits = std::ssize(forward.logit_rows),
                               .sequences = forward.num_sequences()};
    CompileOptions options{.largest = extents, .chains = std::span<const ops::OpChain>(counted)};
    num_taken = 0;
    Result<Program> program = compile(graph, ops::builtin_ops(), context(), options);
    EXPECT_TRUE(program.ok()) << program.status().to_string();
    EXPECT_EQ(program->chains.size(), chained ? 1u : 0u);
    Executor executor = Executor::create(std::move(program).value(), device()).value();
    EXPECT_TRUE(executor.poison(stream(), std::byte{0xff}).ok());
    const Status status = executor.run(context(), forward, extents, inputs_);
    EXPECT_TRUE(status.ok()) << status.to_string();
    std::vector<Tensor> outputs;
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      const TensorView y = executor.output(i);
      Tensor host({y.shape[0], y.shape[1]}, y.dtype);
      const int64_t row_bytes = bytes_of(y.dtype, y.shape[1]);
      for (int64_t t = 0; t < y.shape[0]; ++t) {
        EXPECT_TRUE(stream()
                        .copy(host.view().as<std::byte>() + t * row_bytes,
                              y.as<std::byte>() + bytes_of(y.dtype, t * y.row_stride), row_bytes)
                        .ok());
      }
      EXPECT_TRUE(stream().synchronize().ok());
      outputs.push_back(std::move(host));
    }
    return outputs;
  }

  Tensor compute(const Graph& graph, bool chained, const ops::ForwardContext& forward,
                 int64_t num_tokens) {
    return std::move(compute_all(graph, chained, forward, num_tokens).front());
  }

  std::map<std::string, ops::DeviceTensor, std::less<>> tensors_;
  std::map<std::string, TensorView, std::less<>> views_;
  std::vector<TensorView> inputs_;
};

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceChainsTest, ::testing::Values(device::DeviceKind::kCuda));

// In +-2^-8 of the largest: what roundings of a product's sums in other orders may change.
void expect_near(const Tensor& got, const Tensor& want) {
  const Tensor a = converted(got.view(), DType::kF32), b = converted(want.view(), DType::kF32);
  float largest = 0;
  for (const float value : b.span<float>()) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < b.span<float>().size(); ++i) {
    ASSERT_NEAR(a.span<float>()[i], b.span<float>()[i], largest * 0x1p-7f) << i;
  }
}

TEST_P(DeviceChainsTest, SharedExpertsAreAddedAsByOpsOfTheirOwn) {
  constexpr int64_t kH = 512, kI = 256, kE = 48, kA = 4;
  add_tensor("w13", {kE, 2 * kI, kH}, DType::kBf16, 0.1f);
  add_tensor("w2", {kE, kH, kI}, DType::kBf16, 0.2f);
  add_tensor("down", {kH, kI}, DType::kBf16, 0.2f);
  add_tensor("norm", {kH}, DType::kF32, 1);
  add_tensor("next", {40, kH}, DType::kBf16, 0.1f);
  for (const auto& [gated, goes_on] : {std::pair{true, false}, std::pair{true, true},
                                       std::pair{false, false}, std::pair{false, true}}) {
    for (const int64_t T : {1, 2, 3, 4, 5, 17, 200}) {
      SCOPED_TRACE(fmt::format("gated = {}, goes on = {}, T = {}", gated, goes_on, T));
      inputs_.clear();
      GraphBuilder g = builder();
      const Value x = input(g, "x", T, kH, DType::kBf16);
      Value h = input(g, "a", T, kH, DType::kBf16);
      if (goes_on) h = g.add(h, input(g, "b", T, kH, DType::kBf16));
      const Value scores = input(g, "scores", T, kE, DType::kF32, 3);
      const Value gate_up = input(g, "gate_up", T, 2 * kI, gated ? DType::kF32 : DType::kBf16, 2);
      const Value routed =
          gated ? g.apply1("routed_moe", {x, scores, g.weight("w13"), g.weight("w2")},
                           {{"top_k", kA}, {"normalize", 1}})
                : g.apply1("routed_moe_scored", {x, scores, g.weight("w13"), g.weight("w2")},
                           {{"top_k", kA},
                            {"normalize", 1},
                            {"sigmoid", 1},
                            {"groups", 1},
                            {"groups_kept", 1},
                            {"group_terms", 1},
                            {"scale", 2.5}});
      Value shared = g.linear(g.silu_mul(gate_up), g.weight("down"), {}, DType::kBf16);
      if (gated) shared = g.mul(shared, g.sigmoid(input(g, "gate", T, 1, DType::kF32)));
      Value y = g.add(routed, shared);
      if (goes_on) {
        h = g.add(h, y);
        y = g.linear(g.rms_norm(h, "norm", 1e-6), g.weight("next"), {}, DType::kBf16);
        g.output(h, "h");
      }
      g.output(y, "y");
      const Graph graph = g.finish().value();
      const std::vector<Tensor> want = compute_all(graph, false, {}, T);
      const std::vector<Tensor> got = compute_all(graph, true, {}, T);
      EXPECT_EQ(num_taken, 1);
      for (size_t i = 0; i < want.size(); ++i) {
        if (T <= 4) {
          EXPECT_TRUE(same_bits(got[i].view(), want[i].view())) << "output " << i;
        } else {
          expect_near(got[i], want[i]);
        }
      }
    }
  }
}

// The norm writes the rows whose logits are wanted, if these are all in their order; else they are
// copied.
TEST_P(DeviceChainsTest, NormsWriteTheRowsThatAreWanted) {
  constexpr int64_t kH = 520;
  add_tensor("norm", {kH}, DType::kF32, 1);
  for (const bool adds : {true, false}) {
    for (const int64_t T : {1, 2, 17, 70}) {
      std::vector<int32_t> all(static_cast<size_t>(T));
      std::iota(all.begin(), all.end(), 0);
      const std::vector<int32_t> reversed(all.rbegin(), all.rend());
      const std::vector<int32_t> last{all.back()};
      for (const std::vector<int32_t>& wanted : {all, reversed, last}) {
        SCOPED_TRACE(fmt::format("adds = {}, T = {}, {} wanted, {} the first", adds, T,
                                 wanted.size(), wanted[0]));
        inputs_.clear();
        GraphBuilder g = builder();
        const Value a = input(g, "a", T, kH, DType::kBf16);
        Value h = g.add(a, input(g, "b", T, kH, DType::kBf16));
        if (adds) {
          h = g.add(h, input(g, "c", T, kH, DType::kBf16));
          g.output(h, "sum");
        } else {
          h = g.sigmoid(h);
        }
        g.output(g.logit_rows(g.rms_norm(h, "norm", 1e-6)), "rows");
        const Graph graph = g.finish().value();
        const std::vector<int32_t> starts{0, static_cast<int32_t>(T)}, contexts{0};
        ops::ForwardContext forward;
        forward.query_start = starts;
        forward.context_lens = contexts;
        forward.logit_rows = wanted;
        upload_batch(forward);
        const std::vector<Tensor> want = compute_all(graph, false, forward, T);
        const std::vector<Tensor> got = compute_all(graph, true, forward, T);
        EXPECT_EQ(num_taken, wanted == all ? 1 : 0);
        for (size_t i = 0; i < want.size(); ++i) {
          EXPECT_TRUE(same_bits(got[i].view(), want[i].view())) << "output " << i;
        }
      }
    }
  }
}

// A gate before a product, and the sum with the residual and the norm behind it, give the bits of
// the single ops, for one row, for few and for more, which are not chained. Other ops read the norm
// and the sum.
class ProductChainsTest : public DeviceChainsTest {
 protected:
  enum class Begin { kNorm, kProduct, kSigmoid, kSilu };

  void expect_bits_of_single_ops(int64_t K, int64_t H, int64_t N, std::span<const int64_t> rows) {
    add_tensor("norm", {H}, DType::kF32, 1);
    add_tensor("out", {H, K}, DType::kBf16, 0.1f);
    add_tensor("first", {N, H}, DType::kBf16, 0.1f);
    add_tensor("second", {36, H}, DType::kBf16, 0.1f);
    for (const Begin begin : {Begin::kNorm, Begin::kProduct, Begin::kSigmoid, Begin::kSilu}) {
      for (const int64_t T : rows) {
        SCOPED_TRACE(
            fmt::format("K = {}, H = {}, begin = {}, T = {}", K, H, static_cast<int>(begin), T));
        inputs_.clear();
        const Graph graph = graph_of(K, H, begin, T);
        const std::vector<Tensor> want = compute_all(graph, false, {}, T);
        const std::vector<Tensor> got = compute_all(graph, true, {}, T);
        EXPECT_EQ(num_taken, T <= 16 ? 1 : 0);
        for (size_t i = 0; i < want.size(); ++i) {
          EXPECT_TRUE(same_bits(got[i].view(), want[i].view())) << "output " << i;
        }
      }
    }
  }

 private:
  Graph graph_of(int64_t K, int64_t H, Begin begin, int64_t T) {
    GraphBuilder g = builder();
    Value h = input(g, "a", T, H, DType::kBf16);
    if (begin != Begin::kNorm) {
      Value x = input(g, "x", T, begin == Begin::kSilu ? 2 * K : K, DType::kBf16, 2);
      h = g.add(h, input(g, "b", T, H, DType::kBf16));  // an input is no residual
      if (begin == Begin::kSilu) x = g.silu_mul(x);
      if (begin == Begin::kSigmoid) {
        x = g.mul(x, g.sigmoid(input(g, "gate", T, K, DType::kBf16, 3)));
      }
      h = g.add(h, g.linear(x, g.weight("out"), {}, DType::kBf16));
    }
    const Value y = g.rms_norm(h, "norm", 1e-6);
    g.output(g.linear(y, g.weight("first"), {}, DType::kBf16), "first");
    const bool two = T != 3;
    if (two) g.output(g.linear(y, g.weight("second"), {}, DType::kF32), "second");
    g.output(y, "y");
    if (begin != Begin::kNorm) g.output(h, "h");
    return g.finish().value();
  }
};

INSTANTIATE_TEST_SUITE_P(Cuda, ProductChainsTest, ::testing::Values(device::DeviceKind::kCuda));

TEST_P(ProductChainsTest, SmallestGiveTheBitsOfSingleOps) {
  expect_bits_of_single_ops(256, 512, 40, std::vector<int64_t>{1, 2, 3, 16});
}

TEST_P(ProductChainsTest, GiveTheBitsOfSingleOps) {
  struct Case {
    int64_t K, H, N;
  };

  for (const auto& [K, H, N] :
       {Case{256, 512, 40}, Case{1024, 256, 12}, Case{4096, 2048, 4504}, Case{512, 3840, 304}}) {
    expect_bits_of_single_ops(K, H, N, std::vector<int64_t>{1, 2, 3, 9, 16, 17});
  }
}

TEST_P(DeviceChainsTest, GatesAreAppliedOnTheirWayIntoProducts) {
  constexpr int64_t kH = 1024, kN = 72;
  add_tensor("down", {kN, kH}, DType::kBf16, 0.1f);
  for (const bool silu : {true, false}) {
    for (const int64_t T : {1, 3, 16, 17}) {
      SCOPED_TRACE(fmt::format("silu = {}, T = {}", silu, T));
      inputs_.clear();
      GraphBuilder g = builder();
      const Value x = input(g, "x", T, silu ? 2 * kH : kH, DType::kBf16, 3);
      const Value gated =
          silu ? g.silu_mul(x) : g.mul(x, g.sigmoid(input(g, "gate", T, kH, DType::kBf16, 3)));
      g.output(g.linear(gated, g.weight("down"), {}, DType::kBf16), "y");
      const Graph graph = g.finish().value();
      const Tensor want = compute(graph, false, {}, T);
      const Tensor got = compute(graph, true, {}, T);
      EXPECT_EQ(num_taken, T == 1 ? 1 : 0);
      EXPECT_TRUE(same_bits(got.view(), want.view()));
    }
  }
}

// Compares attention's output and the rows of its pages, for prompts and for sequences that decode,
// one of which finds keys and values that are stored already.
TEST_P(DeviceChainsTest, KeysAreRotatedOnTheirWayIntoPages) {
  constexpr int64_t kHeads = 6, kKvHeads = 2, kDim = 64, kPages = 40;
  constexpr int32_t kPageSize = 16;
  add_tensor("norm", {kDim}, DType::kF32, 1);
  add_tensor("frequencies", {kDim / 4}, DType::kF32, 1);
  const std::vector<int32_t> starts{0, 1, 71, 72, 75}, contexts{9, 0, 100, 30};
  const std::vector<int32_t> stored{9, 33, 100, 32};
  constexpr int64_t kT = 75, kWidth = 8;
  std::vector<int32_t> table;
  for (int32_t i = 0; i < 4 * kWidth; ++i) table.push_back(1 + i);
  for (const DType pool : {DType::kBf16, DType::kF32, DType::kF8E4M3}) {
    for (const bool normed : {true, false}) {
      SCOPED_TRACE(fmt::format("pages of {}, normed = {}", to_string(pool), normed));
      inputs_.clear();
      GraphBuilder g = builder();
      const Value positions =
          g.input("positions", {DType::kI32, {ops::SymbolicDim::of(ops::Symbol::kTokens)}});
      Tensor numbers({kT}, DType::kI32);
      for (size_t b = 0; b < contexts.size(); ++b) {
        for (int32_t row = starts[b]; row < starts[b + 1]; ++row) {
          numbers.span<int32_t>()[static_cast<size_t>(row)] = contexts[b] + row - starts[b];
        }
      }
      const ops::DeviceTensor positions_here = upload(numbers);
      inputs_.push_back(positions_here.view());
      const auto rotated = [&](const char* name, int64_t heads) {
        Value x = input(g, name, kT, heads * kDim, DType::kBf16);
        if (normed) x = g.rms_norm(x, "norm", 1e-6);
        return x;
      };
      const Value q_in = rotated("q", kHeads), k_in = rotated("k", kKvHeads);
      const Value v = input(g, "v", kT, kKvHeads * kDim, DType::kBf16);
      const Value q = g.rope(q_in, positions, g.weight("frequencies"), kDim, 1.25);
      const Value k = g.rope(k_in, positions, g.weight("frequencies"), kDim, 1.25);
      g.output(g.apply1("paged_attention", {q, k, v},
                        {{"num_kv_heads", kKvHeads},
                         {"head_dim", kDim},
                         {"scale", 0.125},
                         {"window", 0},
                         {"layer", 0}}),
               "y");
      const Graph graph = g.finish().value();

      const std::vector<int32_t> slots(4, 0);
      ops::ForwardContext forward;
      forward.query_start = starts;
      forward.context_lens = contexts;
      forward.kv_lens = stored;
      forward.page_tables[0] = table;
      forward.page_table_width = kWidth;
      forward.page_size = kPageSize;
      forward.state_slots = slots;
      upload_batch(forward);
      std::vector<std::vector<Tensor>> results;
      for (const bool chained : {false, true}) {
        const Shape shape{kPages, kPageSize, kKvHeads, kDim};
        const auto pages = [&](uint64_t seed) {
          Tensor rows = random_tensor(shape, pool, seed);
          if (pool == DType::kF8E4M3) {  // any finite numbers
            std::mt19937 random(static_cast<uint32_t>(seed));
            std::ranges::generate(
                std::span(rows.view().as<uint8_t>(), static_cast<size_t>(rows.num_bytes())),
                [&] { return static_cast<uint8_t>(random() & 0xb7); });
          }
          return upload(rows);
        };
        ops::DeviceTensor keys = pages(7), values = pages(8);
        const bool scaled = pool == DType::kF8E4M3;
        const std::vector<ops::KvLayer> layers{{.k = keys.view(),
                                                .v = values.view(),
                                                .k_scale = scaled ? 0.03f : 1.0f,
                                                .v_scale = scaled ? 0.02f : 1.0f}};
        forward.kv_layers = layers;
        results.emplace_back();
        results.back().push_back(compute(graph, chained, forward, kT));
        EXPECT_EQ(num_taken, chained ? 1 : 0);
        results.back().push_back(download(keys));
        results.back().push_back(download(values));
      }
      constexpr const char* kNames[] = {"y", "keys", "values"};
      for (size_t i = 0; i < results[0].size(); ++i) {
        EXPECT_TRUE(same_bits(results[1][i].view(), results[0][i].view())) << kNames[i];
      }
    }
  }
}

// States and windows of a delta net, and its snapshots, as three ops leave them and as one does.
class DeltaStepTest : public DeviceChainsTest {
 protected:
  struct Case {
    int64_t Nk, Nv;
    DType snapshots;
    bool own_slots;  // false: snapshots lie in state slots
  };

  struct Step {
    int32_t sequences, rows;  // of each
  };

  void expect_three_ops(const Case& net, std::span<const Step> steps) {
    constexpr int64_t kDim = 128, kSlots = 7;
    const auto& [Nk, Nv, snapshot_dtype, own_slots] = net;
    SCOPED_TRACE(fmt::format("{} key heads, {} value heads", Nk, Nv));
    const int64_t C = 2 * Nk * kDim + Nv * kDim;
    add_tensor("conv", {C, 4}, DType::kF32, 0.7f);
    add_tensor("neg_exp_a_log", {Nv}, DType::kF32, -1);
    add_tensor("dt_bias", {Nv}, DType::kF32, 1);
    add_tensor("norm", {kDim}, DType::kF32, 1);
    for (const auto& [B, each] : steps) {
      SCOPED_TRACE(fmt::format("{} sequences of {} tokens", B, each));
      const int64_t T = B * each;
      inputs_.clear();
      GraphBuilder g = builder();
      const Value mixed = g.apply1(
          "causal_conv1d", {input(g, "qkv", T, C, DType::kBf16), g.weight("conv")}, {{"layer", 0}});
      const Value a = input(g, "a", T, Nv, DType::kF32), b = input(g, "b", T, Nv, DType::kF32);
      const Value o = g.apply1("gated_delta_rule",
                               {mixed, a, b, g.weight("neg_exp_a_log"), g.weight("dt_bias")},
                               {{"num_key_heads", static_cast<double>(Nk)},
                                {"key_dim", kDim},
                                {"value_dim", kDim},
                                {"layer", 0}});
      g.output(g.apply1("gated_rms_norm",
                        {o, input(g, "z", T, Nv * kDim, DType::kBf16, 2), g.weight("norm")},
                        {{"epsilon", 1e-6}}),
               "y");
      const Graph graph = g.finish().value();

      // Of four sequences one begins, one is padding, and two want snapshots, one of them several.
      const std::vector<int32_t> starts{0, each, 2 * each, 3 * each, 4 * each};
      const std::vector<int32_t> contexts{9, 0, 5, 7};
      const std::vector<int32_t> slots{3, 1, B > 1 ? -1 : 2, 5};
      std::vector<ops::StateSnapshot> snapshots{{.sequence = 0, .num_tokens = 1, .slot = 2}};
      if (each > 2) snapshots.push_back({.sequence = 0, .num_tokens = 3, .slot = 6});
      if (B > 3) snapshots.push_back({.sequence = 3, .num_tokens = each, .slot = 4});
      const auto count = static_cast<size_t>(B);
      ops::ForwardContext forward;
      forward.query_start = std::span(starts).first(count + 1);
      forward.context_lens = std::span(contexts).first(count);
      forward.state_slots = std::span(slots).first(count);
      forward.snapshots = snapshots;
      upload_batch(forward);

      std::vector<std::vector<Tensor>> results;
      for (const bool chained : {false, true}) {
        const Shape matrices{kSlots, Nv, kDim, kDim}, windows{kSlots, 3, C};
        ops::DeviceTensor state = upload(random_tensor(matrices, DType::kF32, 5));
        ops::DeviceTensor window = upload(random_tensor(windows, DType::kF32, 6));
        ops::DeviceTensor kept = poisoned(matrices, snapshot_dtype);
        ops::DeviceTensor kept_window = poisoned(windows, DType::kF32);
        ops::DeviceTensor scales = poisoned({kSlots, Nv, kDim}, DType::kF32);
        const std::vector<ops::StateLayer> layers{
            {.conv = window.view(), .recurrent = state.view()}};
        const std::vector<ops::SnapshotLayer> snapshot_layers{
            {.conv = kept_window.view(),
             .recurrent = kept.view(),
             .scales = snapshot_dtype == DType::kI8 ? scales.view() : MutableTensorView()}};
        forward.state_layers = layers;
        if (own_slots) forward.snapshot_layers = snapshot_layers;
        Tensor y = compute(graph, chained, forward, T);
        EXPECT_EQ(num_taken, chained && is_hopper() ? 1 : 0);
        if (B > 2) {  // rows of padding
          std::ranges::fill_n(y.view().row<Bf16>(2 * each), each * y.shape()[1], Bf16());
        }
        results.emplace_back();
        results.back().push_back(std::move(y));
        for (const ops::DeviceTensor* tensor : {&state, &window, &kept, &kept_window, &scales}) {
          results.back().push_back(download(*tensor));
        }
      }
      constexpr const char* kNames[] = {"y",         "states",           "windows",
                                        "snapshots", "snapshot windows", "scales"};
      for (size_t i = 0; i < results[0].size(); ++i) {
        EXPECT_TRUE(same_bits(results[1][i].view(), results[0][i].view())) << kNames[i];
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Cuda, DeltaStepTest, ::testing::Values(device::DeviceKind::kCuda));

TEST_P(DeltaStepTest, SmallestIsItsThreeOps) {
  expect_three_ops({2, 4, DType::kF32, true}, std::vector<Step>{{1, 1}, {4, 3}});
}

TEST_P(DeltaStepTest, IsItsThreeOps) {
  for (const Case& net : {Case{2, 2, DType::kF32, true}, Case{3, 6, DType::kBf16, true},
                          Case{1, 4, DType::kI8, true}, Case{1, 8, DType::kBf16, true},
                          Case{1, 3, DType::kF32, true}, Case{2, 4, DType::kF32, false},
                          // Of four sequences heads are whole, or halves two to a multiprocessor.
                          Case{28, 56, DType::kF32, true}, Case{28, 28, DType::kBf16, true}}) {
    expect_three_ops(net, std::vector<Step>{{1, 1}, {4, 1}, {1, 4}, {4, 3}, {4, 8}});
  }
}

}  // namespace
}  // namespace heddle::graph
