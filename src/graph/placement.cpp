// SPDX-License-Identifier: Apache-2.0
#include "graph/placement.h"

#include <algorithm>
#include <utility>

namespace heddle::graph {

namespace {

// Number of elements in one row: the product of all dimensions but the first. These dimensions are
// fixed.
int64_t row_width(const ops::TensorMeta& meta) {
  int64_t width = 1;
  for (int i = 1; i < meta.rank; ++i) width *= meta[i].offset;
  return width;
}

// The smallest row width, in elements, that is a multiple of 16 bytes.
int64_t padded_width(const ops::TensorMeta& meta) {
  constexpr int64_t kVectorBits = 128;
  const int64_t elements = kVectorBits / bits_of(meta.dtype);
  return (row_width(meta) + elements - 1) / elements * elements;
}

class CopyElider {
 public:
  explicit CopyElider(Graph graph) : graph_(std::move(graph)), uses_(count_uses(graph_)) {}

  PlacedGraph run() {
    placements_.resize(graph_.values.size());
    for (uint32_t id = 0; id < graph_.values.size(); ++id) placements_[id].storage = {id};
    strided_readers_ = readers_take_strided_rows();

    std::vector<bool> removed(graph_.nodes.size(), false);
    // Concatenations are processed from the last to the first, so that nested ones find their final
    // storage.
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      if (graph_.nodes[i].op->name == "concat") removed[i] = place_parts_of(graph_.nodes[i]);
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!removed[i]) removed[i] = share_inputs_of(graph_.nodes[i]);
    }
    std::vector<Node> nodes;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!removed[i]) nodes.push_back(std::move(graph_.nodes[i]));
    }
    graph_.nodes = std::move(nodes);
    std::vector<int64_t> row_strides = strides();
    return {.graph = std::move(graph_),
            .placements = std::move(placements_),
            .row_strides = std::move(row_strides)};
  }

 private:
  // Indexed by value: whether all nodes that read the value accept strided rows, and it is no
  // output of the graph.
  [[nodiscard]] std::vector<bool> readers_take_strided_rows() const {
    std::vector<bool> strided(graph_.values.size(), true);
    for (const Node& node : graph_.nodes) {
      if (node.op->takes_strided_rows) continue;
      for (const Value input : node.inputs) strided[input.id] = false;
    }
    for (const Value output : graph_.outputs) strided[output.id] = false;
    return strided;
  }

  // Indexed by value, for storages: elements from one row to the next.
  [[nodiscard]] std::vector<int64_t> strides() const {
    std::vector<int64_t> result(graph_.values.size());
    for (uint32_t id = 0; id < graph_.values.size(); ++id) {
      const ValueInfo& info = graph_.info({id});
      result[id] = row_width(info.meta);
      if (info.kind == ValueKind::kComputed && info.meta.rank > 1) {
        result[id] = padded_width(info.meta);
      }
    }
    for (const Node& node : graph_.nodes) {
      if (node.op->takes_strided_rows) continue;
      for (const std::vector<Value>* values : {&node.inputs, &node.outputs}) {
        for (const Value value : *values) {
          const Value storage = placements_[value.id].storage;
          result[storage.id] = row_width(graph_.info(storage).meta);
        }
      }
    }
    return result;
  }

  // Makes the inputs of a concatenation column ranges of its output. Returns false if one of them
  // cannot be.
  bool place_parts_of(const Node& concat) {
    for (size_t i = 0; i < concat.inputs.size(); ++i) {
      const Value part = concat.inputs[i];
      const int32_t producer = uses_.producer[part.id];
      if (producer < 0 || !strided_readers_[part.id]) return false;
      const Node& node = graph_.nodes[static_cast<size_t>(producer)];
      if (!node.op->takes_strided_rows || !node.op->aliases.empty()) return false;
      if (placements_[part.id].storage != part) return false;
      if (std::ranges::find(concat.inputs.begin() + static_cast<ptrdiff_t>(i) + 1,
                            concat.inputs.end(), part) != concat.inputs.end()) {
        return false;
      }
    }
    const Placement whole = placements_[concat.outputs[0].id];
    int64_t column = whole.column;
    for (const Value part : concat.inputs) {
      placements_[part.id] = {.storage = whole.storage, .column = column};
      column += row_width(graph_.info(part).meta);
    }
    return true;
  }

  // Outputs that are versions or column ranges of inputs get the storage of these inputs. Returns
  // true if the node needs no launch any more.
  bool share_inputs_of(const Node& node) {
    bool free_of_work = false;
    for (const auto& alias : node.op->aliases) {
      const Value output = node.outputs[static_cast<size_t>(alias.output)];
      const Placement& source = placements_[node.inputs[static_cast<size_t>(alias.input)].id];
      if (alias.mutates) {
        placements_[output.id] = source;
        continue;
      }
      const bool from_outside =
          graph_.info(source.storage).kind != ValueKind::kComputed || !strided_readers_[output.id];
      if (from_outside) continue;
      placements_[output.id] = {.storage = source.storage,
                                .column = source.column + node.attrs.integer("start")};
      free_of_work = true;
    }
    return free_of_work;
  }

  Graph graph_;
  UseCounts uses_;
  std::vector<Placement> placements_;
  std::vector<bool> strided_readers_;
};

}  // namespace

int64_t PlacedGraph::storage_bytes(Value storage, const ops::Extents& extents) const {
  const ops::TensorMeta& meta = graph.info(storage).meta;
  if (meta.rank == 0) return bytes_of(meta.dtype, 1);
  return bytes_of(meta.dtype, meta[0].at(extents) * row_strides[storage.id]);
}

PlacedGraph elide_copies(Graph graph) { return CopyElider(std::move(graph)).run(); }

}  // namespace heddle::graph
