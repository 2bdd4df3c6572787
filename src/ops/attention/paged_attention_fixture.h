// SPDX-License-Identifier: Apache-2.0
// Fixture for paged attention tests: a conversation of several sequences over a pool of pages,
// advanced with any chunking, batching and page size.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "ops/attention/paged_attention.h"
#include "ops/attention/paged_attention_reference.h"
#include "ops/device_fixture.h"
#include "ops/tree_fixture.h"
#include "support/tensors.h"

namespace heddle::ops::testing {

struct Geometry {
  int64_t Nq = 4;
  int64_t Nkv = 2;
  int64_t D = 64;
  int64_t S = 16;
  DType dtype = DType::kF32;
  int64_t window = 0;
  bool sinks = false;
  int64_t Dv = 0;       // 0: D
  bool latent = false;  // values are the first Dv channels of the keys
  float k_scale = 1;    // scale of e4m3 pages
  float v_scale = 1;
  DType activations = DType::kF32;
  bool exact = true;  // context mode: exact or fast

  [[nodiscard]] int64_t value_dim() const { return Dv > 0 ? Dv : D; }
};

// Stores pages as `dtype`. For e4m3, the scales map numbers of +-1.7 to up to +-340 and +-20.
inline Geometry with_pages(Geometry geometry, DType dtype) {
  geometry.dtype = dtype;
  geometry.k_scale = dtype == DType::kF8E4M3 ? 0.005f : 1.0f;
  geometry.v_scale = dtype == DType::kF8E4M3 ? 0.085f : 1.0f;
  return geometry;
}

struct SequencePart {
  int sequence = 0;  // index into the conversation
  int64_t first = 0;
  int64_t num_rows = 0;
  int64_t kv_len = 0;  // tokens before this have their keys and values in the pages; their inputs
                       // are NaN
  heddle::testing::Parents parents = {};  // not empty: the last rows are nodes of a tree
  std::vector<int64_t> tokens = {};  // which token's inputs each row has; empty: from `first` on
};

inline constexpr float kCanary = 768.0f;  // exact in every dtype

// A number that depends only on its coordinates, so that the inputs do not depend on the order of
// computation.
inline float noise(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u + c * 0x94d049bb133111ebu + 1;
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 31;
  return static_cast<float>(static_cast<double>(x >> 11) * 0x1p-52 - 1.0) * 1.7f;
}

// The test that runs a conversation.
class AttentionTest : public DeviceTest {
 public:
  using DeviceTest::context_on;
  using DeviceTest::download;
  using DeviceTest::poisoned;
  using DeviceTest::rounding_of;
  using DeviceTest::upload;
  using DeviceTest::upload_batch;
};

// Several sequences with their own pages in a pool, advanced step by step with any chunking. Before
// each step the tokens before its windows are poisoned, and pages with no other tokens are
// replaced.
class Conversation {
 public:
  Conversation(AttentionTest& test, const Geometry& geometry, std::vector<int64_t> lengths,
               uint64_t page_seed = 1)
      : test_(test), geometry_(geometry), lengths_(std::move(lengths)) {
    const int64_t longest = *std::max_element(lengths_.begin(), lengths_.end());
    width_ = (longest + geometry.S - 1) / geometry.S;
    const int64_t num_owned = width_ * static_cast<int64_t>(lengths_.size());
    num_pages_ = num_owned + 3;  // the sink and two pages that no sequence owns
    k_pages_ = Tensor({num_pages_, geometry.S, geometry.Nkv, geometry.D}, geometry.dtype);
    v_pages_ = Tensor({num_pages_, geometry.S, geometry.Nkv, geometry.value_dim()}, geometry.dtype);
    for (Tensor* pool : {&k_pages_, &v_pages_}) {
      std::memset(pool->view().data, 0xff,
                  static_cast<size_t>(pool->num_bytes()));  // NaN everywhere
    }
    std::vector<int32_t> ids(static_cast<size_t>(num_pages_ - 1));
    std::iota(ids.begin(), ids.end(), 1);
    std::mt19937_64 random(page_seed);
    std::shuffle(ids.begin(), ids.end(), random);
    table_.assign(ids.begin(), ids.begin() + num_owned);
    sinks_ = Tensor({geometry.Nq}, DType::kF32);
    for (int64_t h = 0; h < geometry.Nq; ++h) {
      sinks_.span<float>()[static_cast<size_t>(h)] = noise(3, static_cast<uint64_t>(h), 1);
    }
    foreign_ = {0, ids[static_cast<size_t>(num_owned)], ids[static_cast<size_t>(num_owned) + 1]};
    for (const int64_t length : lengths_) {
      outputs_.emplace_back(static_cast<size_t>(length * geometry.Nq * geometry.value_dim()),
                            kCanary);
    }
  }

  // Runs one step and keeps its output rows. The tensors are strided, with canaries around them.
  void step(const std::vector<SequencePart>& parts, int num_threads = 1) {
    const Geometry& g = geometry_;
    const int64_t query_width = g.Nq * g.D, k_width = g.Nkv * g.D;
    const int64_t v_width = g.Nkv * g.value_dim(), output_width = g.Nq * g.value_dim();
    int64_t T = 0;
    query_start_ = {0};
    context_lens_.clear();
    kv_lens_.clear();
    step_table_.clear();
    for (const SequencePart& part : parts) {
      T += part.num_rows;
      query_start_.push_back(static_cast<int32_t>(T));
      context_lens_.push_back(static_cast<int32_t>(part.first));
      kv_lens_.push_back(static_cast<int32_t>(std::max(part.first, part.kv_len)));
      const auto row = table_.begin() + part.sequence * width_;
      step_table_.insert(step_table_.end(), row, row + width_);
      poison_before_window(part);
    }
    const int64_t qkv_width = query_width + k_width + v_width;
    Tensor qkv({T, qkv_width + 5}, DType::kF32);
    Tensor y({T, output_width + 3}, DType::kF32);
    std::ranges::fill(y.span<float>(), kCanary);
    fill_inputs(parts, qkv);
    const Tensor rounded_qkv = heddle::testing::converted(qkv.view(), g.activations);
    qkv = heddle::testing::converted(rounded_qkv.view(), DType::kF32);
    Context& context = test_.context_on(num_threads, g.exact);
    ForwardContext forward;
    forward.query_start = query_start_;
    forward.context_lens = context_lens_;
    const bool replays =
        std::ranges::any_of(parts, [](const SequencePart& part) { return part.kv_len > 0; });
    if (replays) forward.kv_lens = kv_lens_;
    heddle::testing::StepTrees trees;
    for (const SequencePart& part : parts) trees.add(part.first, part.num_rows, part.parents);
    trees.set(forward);
    // Sliding-window layers have a page table of their own.
    const uint32_t table = g.window > 0 && !replays ? 2 : 0;
    forward.page_tables[table] = step_table_;
    forward.page_table_width = width_;
    forward.page_size = static_cast<int32_t>(g.S);
    const int64_t workspace_bytes = paged_attention_workspace_bytes(context, T, g.D, g.value_dim());
    DeviceTensor workspace = test_.poisoned({workspace_bytes}, DType::kU8);
    float* base = qkv.view().as<float>();
    const TensorView v{base + query_width + k_width, DType::kF32, {T, v_width}, qkv_width + 5};
    const PagedAttentionArgs args{
        .q = {base, DType::kF32, {T, query_width}, qkv_width + 5},
        .k = {base + query_width, DType::kF32, {T, k_width}, qkv_width + 5},
        .v = g.latent ? TensorView() : v,
        .y = {y.view().data, DType::kF32, {T, output_width}, output_width + 3},
        .num_kv_heads = g.Nkv,
        .head_dim = g.D,
        .value_dim = g.Dv,
        .scale = 1.0f / std::sqrt(static_cast<float>(g.D)),
        .window = g.window,
        .sinks = g.sinks ? TensorView(sinks_.view()) : TensorView(),
        .kv = {k_pages_.view(), g.latent ? MutableTensorView() : v_pages_.view(), g.k_scale,
               g.v_scale, table},
        .forward = &forward};
    launch(context, args, rounded_qkv, y,
           {workspace.view().as<std::byte>(), static_cast<size_t>(workspace_bytes)}, forward);
    if (check_reference_) compare(args);
    for (int64_t row = 0; row < T; ++row) {
      for (int64_t c = output_width; c < output_width + 3; ++c) {
        ASSERT_EQ(y.view().row<float>(row)[c], kCanary) << "beyond row " << row;
      }
    }
    keep_rows(parts, y.view());
  }

  // Computes all sequences in one step.
  void run_whole() {
    for (size_t b = 0; b < lengths_.size(); ++b) {
      step({{.sequence = static_cast<int>(b), .first = 0, .num_rows = lengths_[b]}});
    }
  }

  // Sequence `to` reads the first `count` pages of sequence `from`.
  void share_pages(size_t from, size_t to, int64_t count) {
    const auto row = [&](size_t b) { return table_.begin() + static_cast<int64_t>(b) * width_; };
    std::copy_n(row(from), count, row(to));
  }

  // The bytes of a sequence's first `count` pages.
  std::vector<uint8_t> page_bytes(size_t sequence, int64_t count) {
    std::vector<uint8_t> all;
    for (const Tensor* pool : {&k_pages_, &v_pages_}) {
      const int64_t bytes = pool->num_bytes() / num_pages_;
      for (int64_t i = 0; i < count; ++i) {
        const int32_t page =
            table_[sequence * static_cast<size_t>(width_) + static_cast<size_t>(i)];
        const auto* from = static_cast<const uint8_t*>(pool->view().data) + page * bytes;
        all.insert(all.end(), from, from + bytes);
      }
    }
    return all;
  }

  void set_sinks(float value) { std::ranges::fill(sinks_.span<float>(), value); }

  void check_against_reference(bool on) { check_reference_ = on; }

  // Computes every step a second time without keys and values, which are then in the pages.
  void read_pages_again(bool on) { reads_again_ = on; }

  [[nodiscard]] const std::vector<std::vector<float>>& outputs() const { return outputs_; }

  // Expects that pages without an owner are unchanged.
  void expect_foreign_pages_untouched() {
    for (const Tensor* pool : {&k_pages_, &v_pages_}) {
      const int64_t page_bytes = pool->num_bytes() / num_pages_;
      for (const int32_t page : foreign_) {
        const auto* bytes = static_cast<const uint8_t*>(pool->view().data) + page * page_bytes;
        EXPECT_TRUE(std::all_of(bytes, bytes + page_bytes, [](uint8_t b) { return b == 0xff; }))
            << "page " << page;
      }
    }
  }

 private:
  // Runs the step of `args`, whose tensors are on the host, on the device and copies the results
  // back.
  void launch(Context& context, const PagedAttentionArgs& args, const Tensor& rounded_qkv,
              Tensor& y, std::span<std::byte> workspace, ForwardContext& forward) {
    const DType dtype = geometry_.activations;
    test_.upload_batch(forward);
    const DeviceTensor qkv = test_.upload(rounded_qkv), sinks = test_.upload(sinks_);
    DeviceTensor device_y = test_.upload(heddle::testing::converted(y.view(), dtype));
    DeviceTensor k_pages = test_.upload(k_pages_), v_pages = test_.upload(v_pages_);
    const auto* base = qkv.view().as<std::byte>();
    const auto part_of = [&](const TensorView& host) -> TensorView {
      if (host.data == nullptr) return {};
      const int64_t offset = host.as<float>() - args.q.as<float>();
      return {base + bytes_of(dtype, offset), dtype, host.shape, host.row_stride};
    };
    PagedAttentionArgs on_device = args;
    on_device.q = part_of(args.q);
    on_device.k = part_of(args.k);
    on_device.v = part_of(args.v);
    on_device.y = {device_y.view().data, dtype, args.y.shape, args.y.row_stride};
    if (args.sinks.data != nullptr) on_device.sinks = sinks.view();
    on_device.kv.k = k_pages.view();
    if (!geometry_.latent) on_device.kv.v = v_pages.view();
    on_device.workspace = workspace;
    const Status status = paged_attention(context, on_device);
    ASSERT_TRUE(status.ok()) << status.to_string();
    const Tensor written = heddle::testing::converted(test_.download(device_y).view(), DType::kF32);
    std::ranges::copy(written.span<float>(), y.span<float>().begin());
    copy_bytes(test_.download(k_pages), k_pages_);
    copy_bytes(test_.download(v_pages), v_pages_);
    if (!reads_again_) return;
    Tensor canaries(y.shape(), DType::kF32);
    std::ranges::fill(canaries.span<float>(), kCanary);
    DeviceTensor again = test_.upload(heddle::testing::converted(canaries.view(), dtype));
    on_device.k = {};
    on_device.v = {};
    on_device.y = {again.view().data, dtype, args.y.shape, args.y.row_stride};
    ASSERT_TRUE(paged_attention(context, on_device).ok());
    const auto same = [&](const DeviceTensor& device, const Tensor& host) {
      return heddle::testing::same_bits(test_.download(device).view(), host.view());
    };
    EXPECT_TRUE(same(again, test_.download(device_y)));
    EXPECT_TRUE(same(k_pages, k_pages_) && same(v_pages, v_pages_)) << "the pages are read alone";
  }

  // In place: the arguments of the step point at the tensors.
  static void copy_bytes(const Tensor& from, Tensor& to) {
    std::memcpy(to.view().data, from.view().data, static_cast<size_t>(from.num_bytes()));
  }

  // Queries, keys and values of the step's rows, side by side. Those whose keys are already in the
  // pages are NaN.
  void fill_inputs(const std::vector<SequencePart>& parts, Tensor& qkv) const {
    const Geometry& g = geometry_;
    const int64_t query_width = g.Nq * g.D;
    const int64_t qkv_width = query_width + g.Nkv * (g.D + g.value_dim());
    for (size_t p = 0; p < parts.size(); ++p) {
      for (int64_t i = 0; i < parts[p].num_rows; ++i) {
        float* to = qkv.view().row<float>(query_start_[p] + i);
        const int64_t token =
            parts[p].tokens.empty() ? parts[p].first + i : parts[p].tokens[static_cast<size_t>(i)];
        for (int64_t c = 0; c < qkv_width; ++c) {
          to[c] = noise(static_cast<uint64_t>(parts[p].sequence) + 7, static_cast<uint64_t>(token),
                        static_cast<uint64_t>(c));
        }
        if (parts[p].first + i < parts[p].kv_len) {
          std::fill(to + query_width, to + qkv_width, std::numeric_limits<float>::quiet_NaN());
        }
      }
    }
  }

  void keep_rows(const std::vector<SequencePart>& parts, const TensorView& y) {
    const int64_t width = geometry_.Nq * geometry_.value_dim();
    for (size_t p = 0; p < parts.size(); ++p) {
      auto& output = outputs_[static_cast<size_t>(parts[p].sequence)];
      for (int64_t i = 0; i < parts[p].num_rows; ++i) {
        std::memcpy(output.data() + (parts[p].first + i) * width, y.row<float>(query_start_[p] + i),
                    static_cast<size_t>(width) * sizeof(float));
      }
    }
  }

  // Tokens that no row of `part` sees become NaN; whole pages of them are replaced in the step's
  // table by a page that it does not own.
  void poison_before_window(const SequencePart& part) {
    const Geometry& g = geometry_;
    if (g.window == 0) return;
    const int64_t dead = std::max<int64_t>(0, part.first - g.window + 1);
    int32_t* pages = &*(step_table_.end() - width_);
    for (Tensor* pool : {&k_pages_, &v_pages_}) {
      const int64_t token_bytes = pool->num_bytes() / (num_pages_ * g.S);
      for (int64_t token = 0; token < dead; ++token) {
        const int64_t at = pages[token / g.S] * g.S + token % g.S;
        std::memset(static_cast<std::byte*>(pool->view().data) + at * token_bytes, 0xff,
                    static_cast<size_t>(token_bytes));
      }
    }
    for (int64_t page = 0; page < dead / g.S; ++page)
      pages[page] = foreign_[static_cast<size_t>(page % 3)];
  }

  void compare(const PagedAttentionArgs& args) const {
    const std::vector<double> expected = paged_attention_reference(args);
    double error = 0, norm = 0;
    const int64_t width = args.y.shape[1];
    for (int64_t i = 0; i < static_cast<int64_t>(expected.size()); ++i) {
      const double truth = expected[static_cast<size_t>(i)];
      const double value = static_cast<double>(args.y.row<float>(i / width)[i % width]);
      error += (value - truth) * (value - truth);
      norm += truth * truth;
    }
    EXPECT_LE(std::sqrt(error),
              (2e-6 + AttentionTest::rounding_of(geometry_.activations)) * std::sqrt(norm));
  }

  AttentionTest& test_;
  Geometry geometry_;
  std::vector<int64_t> lengths_;
  int64_t width_ = 0;
  int64_t num_pages_ = 0;
  Tensor k_pages_, v_pages_, sinks_;
  std::vector<int32_t> table_;
  std::vector<int32_t> foreign_;
  std::vector<std::vector<float>> outputs_;
  std::vector<int32_t> query_start_, context_lens_, kv_lens_, step_table_;
  bool check_reference_ = false;
  bool reads_again_ = false;
};

// Feeds every sequence in random pieces, prefill and decode mixed.
inline void run_in_pieces(Conversation& conversation, const std::vector<int64_t>& lengths,
                          uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> done(lengths.size());
  while (done != lengths) {
    std::vector<SequencePart> parts;
    for (size_t b = 0; b < lengths.size(); ++b) {
      const int64_t left = lengths[b] - done[b];
      if (left == 0 || random() % 4 == 0) continue;
      const int64_t most = random() % 2 == 0 ? 1 : 70;
      const int64_t rows = std::min<int64_t>(left, 1 + static_cast<int64_t>(random() % 70) % most);
      parts.push_back({.sequence = static_cast<int>(b), .first = done[b], .num_rows = rows});
      done[b] += rows;
    }
    if (!parts.empty()) conversation.step(parts, 1 + static_cast<int>(random() % 3));
  }
}

}  // namespace heddle::ops::testing
