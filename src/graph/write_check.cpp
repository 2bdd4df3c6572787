// SPDX-License-Identifier: Apache-2.0
#include "graph/write_check.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace heddle::graph {

namespace {

// The byte that unwritten elements consist of. As bf16 and fp32 the value is -1.7e38, which no
// model computes. It differs from the arena's poison, so that an op may copy an unwritten padding
// row.
constexpr std::byte kUnwritten{0xfe};

// The unsigned integer whose bytes are all `byte`.
template <typename Bits>
constexpr Bits repeated(std::byte byte) {
  return static_cast<Bits>(static_cast<Bits>(~Bits{0}) / 0xff * std::to_integer<Bits>(byte));
}

// A tensor that a node writes, as rows of bytes.
struct Written {
  std::byte* data;
  int64_t rows;
  int64_t row_bytes;
  int64_t stride_bytes;

  explicit Written(const MutableTensorView& view)
      : data(view.as<std::byte>()),
        rows(view.shape[0]),
        row_bytes(bytes_of(view.dtype, MutableTensorView::dense_row_stride(view.shape))),
        stride_bytes(bytes_of(view.dtype, view.row_stride)) {}

  [[nodiscard]] bool empty() const { return rows == 0 || row_bytes == 0; }

  // Number of bytes from the tensor's first byte to its last one.
  [[nodiscard]] int64_t num_bytes() const { return (rows - 1) * stride_bytes + row_bytes; }
};

class WriteCheck final : public LaunchObserver {
 public:
  WriteCheck(const Executor& executor, device::Stream& stream)
      : executor_(&executor), stream_(&stream) {}

  // Reads back from the device which rows are padding: a row whose sequence has ended becomes
  // padding on the device (ops/drafting/feed_drawn.h).
  Status read_padding(const ops::ForwardContext& forward) {
    if (forward.batch.row_sequences == nullptr || forward.query_start.empty()) return {};
    row_sequences_.resize(static_cast<size_t>(forward.query_start.back()));
    HEDDLE_RETURN_IF_ERROR(stream_->copy(row_sequences_.data(), forward.batch.row_sequences,
                                         bytes_of(DType::kI32, std::ssize(row_sequences_))));
    return stream_->synchronize();
  }

  Status before(const Segment& nodes) override {
    return for_each_output(
        nodes, [&](size_t i, size_t output, const MutableTensorView& view) -> Status {
          // A mark that stays in memory would look like a number to the next owner of the memory.
          if (may_stay_unwritten(nodes, i, output)) return {};
          const Written written(view);
          if (written.row_bytes == written.stride_bytes) {
            return stream_->fill(written.data, kUnwritten, written.num_bytes());
          }
          for (int64_t row = 0; row < written.rows; ++row) {
            HEDDLE_RETURN_IF_ERROR(stream_->fill(written.data + row * written.stride_bytes,
                                                 kUnwritten, written.row_bytes));
          }
          return {};
        });
  }

  Status after(const Segment& nodes) override {
    const std::vector<Node>& all = executor_->program().placed.graph.nodes;
    const bool all_rows = std::all_of(
        all.begin() + static_cast<std::ptrdiff_t>(nodes.begin),
        all.begin() + static_cast<std::ptrdiff_t>(nodes.end),
        [](const Node& node) { return node.op->coverage == ops::WriteCoverage::kAllRows; });
    return for_each_output(nodes, [&](size_t i, size_t output, const MutableTensorView& view) {
      if (may_stay_unwritten(nodes, i, output)) return Status();
      return bytes_of(view.dtype, 1) == 2 ? check<uint16_t>(i, output, view, all_rows)
                                          : check<uint32_t>(i, output, view, all_rows);
    });
  }

 private:
  // Calls `see(node, index of the output, memory of the output)` for each output.
  template <typename See>
  Status for_each_output(const Segment& nodes, const See& see) const {
    const Graph& graph = executor_->program().placed.graph;
    for (size_t i = nodes.begin; i < nodes.end; ++i) {
      const auto outputs = executor_->outputs_of(i);
      for (size_t j = 0; j < outputs.size(); ++j) {
        const DType dtype = outputs[j].dtype;
        const bool is_float = dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF16;
        const bool in_place =
            std::ranges::any_of(graph.nodes[i].op->aliases, [j](const ops::OpDef::Alias& alias) {
              return alias.mutates && static_cast<size_t>(alias.output) == j;
            });
        if (!is_float || in_place || Written(outputs[j]).empty()) continue;
        HEDDLE_RETURN_IF_ERROR(see(i, j, outputs[j]));
      }
    }
    return {};
  }

  // Whether the output is a link of the launched chain that no other node reads.
  [[nodiscard]] bool may_stay_unwritten(const Segment& nodes, size_t node, size_t output) const {
    if (nodes.end - nodes.begin == 1) return false;
    const std::vector<Chain>& chains = executor_->program().chains;
    const auto chain = std::ranges::lower_bound(chains, nodes.begin, {}, &Chain::begin);
    return std::ranges::any_of(chain->ops->links, [&](const ops::OpChain::Link& link) {
      return !link.shared && static_cast<size_t>(link.from) == node - nodes.begin &&
             static_cast<size_t>(link.output) == output;
    });
  }

  [[nodiscard]] bool is_padding(size_t row) const {
    return row < row_sequences_.size() && row_sequences_[row] < 0;
  }

  template <typename Bits>
  Status check(size_t node, size_t output, const MutableTensorView& view, bool all_rows) {
    constexpr auto kMark = repeated<Bits>(kUnwritten);
    const Graph& graph = executor_->program().placed.graph;
    const Value value = graph.nodes[node].outputs[output];
    const bool by_row = graph.info(value).meta[0] == ops::SymbolicDim::of(ops::Symbol::kTokens);
    const Written written(view);
    host_.resize(static_cast<size_t>(written.num_bytes()));
    HEDDLE_RETURN_IF_ERROR(stream_->copy(host_.data(), written.data, written.num_bytes()));
    HEDDLE_RETURN_IF_ERROR(stream_->synchronize());
    bool changed = false;
    for (int64_t row = 0; row < written.rows; ++row) {
      const std::span elements(reinterpret_cast<Bits*>(host_.data() + row * written.stride_bytes),
                               static_cast<size_t>(written.row_bytes) / sizeof(Bits));
      const auto unwritten = std::ranges::find(elements, kMark);
      if (unwritten == elements.end()) continue;
      if (all_rows || !by_row || !is_padding(static_cast<size_t>(row))) {
        return internal_error(fmt::format("{} has not written column {} of row {} of its output {}",
                                          executor_->name_of(node), unwritten - elements.begin(),
                                          row, graph.label(value)));
      }
      std::ranges::replace(elements, kMark, repeated<Bits>(kPoison));
      changed = true;
    }
    if (!changed) return {};
    HEDDLE_RETURN_IF_ERROR(stream_->copy(written.data, host_.data(), written.num_bytes()));
    return stream_->synchronize();  // waits, because the host buffer is reused
  }

  const Executor* executor_;
  device::Stream* stream_;
  std::vector<int32_t> row_sequences_;  // the sequence of each row; empty: no row is padding
  std::vector<std::byte> host_;         // host copy of an output
};

}  // namespace

Status launch_checked(Executor& executor, device::Stream& stream, ops::Context& context,
                      const ops::ForwardContext& forward, const Segment& nodes) {
  WriteCheck check(executor, stream);
  HEDDLE_RETURN_IF_ERROR(check.read_padding(forward));
  return executor.launch(context, forward, nodes, &check);
}

}  // namespace heddle::graph
