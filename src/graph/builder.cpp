// SPDX-License-Identifier: Apache-2.0
#include "graph/builder.h"

#include <utility>

#include <fmt/format.h>

namespace heddle::graph {

namespace {

// The attribute that changes an op's output dtype from `natural` to `wanted`; empty if they are
// equal.
ops::Attrs asking_for(DType wanted, DType natural) {
  if (wanted == natural) return {};
  return {{"output_dtype", static_cast<double>(static_cast<int>(wanted))}};
}

}  // namespace

void GraphBuilder::fail(Status status) {
  if (!status_.ok()) return;
  status_ = scope_.empty() ? std::move(status) : status.with_context(scope_);
}

Value GraphBuilder::input(std::string name, const ops::TensorMeta& meta) {
  const Value value =
      graph_.add_value({.kind = ValueKind::kInput, .meta = meta, .name = std::move(name)});
  graph_.inputs.push_back(value);
  return value;
}

bool GraphBuilder::has_weight(std::string_view name) const {
  return weights_(scope_ + std::string(name)) != nullptr;
}

Value GraphBuilder::weight(std::string_view name) {
  const std::string full = scope_ + std::string(name);
  if (const auto known = constants_.find(full); known != constants_.end()) return known->second;
  const TensorView* found = weights_(full);
  if (found == nullptr) {
    fail(not_found(fmt::format("the model asks for the weight {}, which was not loaded", full)));
    return {};
  }
  return constant(full, *found);
}

Value GraphBuilder::weight_rows(std::string_view name, int64_t first, int64_t count) {
  const std::string full = scope_ + std::string(name);
  const std::string rows = fmt::format("{}[{}:{}]", full, first, first + count);
  if (const auto known = constants_.find(rows); known != constants_.end()) return known->second;
  const TensorView* found = weights_(full);
  const bool is_vector = found != nullptr && found->shape.rank() == 1;
  if (found == nullptr || first < 0 || count < 1 || (found->shape.rank() != 2 && !is_vector) ||
      first + count > found->shape[0]) {
    fail(invalid_argument(
        fmt::format("the model asks for {}, which the weight does not have", rows)));
    return {};
  }
  if (found->dtype == DType::kPacked) {
    auto cut = std::make_shared<const quant::PackedWeight>(found->packed->cut(first, count));
    // A part whose rows are not quantised is used like a plain weight.
    if (cut->parts.size() == 1 && cut->parts[0].plain.data != nullptr) {
      return constant(rows, cut->parts[0].plain);
    }
    TensorView view(nullptr, DType::kPacked, {count, found->shape[1]});
    view.packed = cut.get();
    const Value value = constant(rows, view);
    graph_.info(value).cut = std::move(cut);
    return value;
  }
  if (is_vector) {
    return constant(rows, TensorView(found->as<std::byte>() + bytes_of(found->dtype, first),
                                     found->dtype, {count}));
  }
  const auto* data = found->as<std::byte>() + bytes_of(found->dtype, first * found->row_stride);
  return constant(rows,
                  TensorView(data, found->dtype, {count, found->shape[1]}, found->row_stride));
}

Value GraphBuilder::constant(std::string name, const TensorView& view) {
  const Value value = graph_.add_value({.kind = ValueKind::kConstant,
                                        .meta = ops::TensorMeta::of(view),
                                        .name = name,
                                        .constant = view});
  constants_.emplace(std::move(name), value);
  return value;
}

std::vector<Value> GraphBuilder::apply(std::string_view op_name, std::vector<Value> inputs,
                                       ops::Attrs attrs) {
  const ops::OpDef* op = registry_.find(op_name);
  if (op == nullptr) fail(not_found(fmt::format("there is no op named {}", op_name)));
  for (const Value value : inputs) {
    if (!value.valid()) fail(internal_error(fmt::format("{}: an input is missing", op_name)));
  }
  if (!status_.ok()) return {};
  if (static_cast<int>(inputs.size()) != op->num_inputs) {
    fail(invalid_argument(
        fmt::format("{} takes {} inputs, got {}", op_name, op->num_inputs, inputs.size())));
    return {};
  }
  std::vector<ops::TensorMeta> input_metas;
  for (const Value value : inputs) input_metas.push_back(graph_.info(value).meta);
  std::vector<ops::TensorMeta> output_metas;
  if (Status status = op->infer(input_metas, attrs, output_metas); !status.ok()) {
    fail(std::move(status));
    return {};
  }
  std::vector<Value> outputs;
  for (const ops::TensorMeta& meta : output_metas)
    outputs.push_back(graph_.add_value({.meta = meta}));
  graph_.nodes.push_back(
      {.op = op, .inputs = std::move(inputs), .outputs = outputs, .attrs = attrs, .scope = scope_});
  return outputs;
}

Value GraphBuilder::apply1(std::string_view op, std::vector<Value> inputs, ops::Attrs attrs) {
  std::vector<Value> outputs = apply(op, std::move(inputs), attrs);
  return outputs.empty() ? Value{} : outputs[0];
}

Value GraphBuilder::embedding(Value ids, std::string_view table) {
  return apply1("embedding", {ids, weight(table)}, asking_for(activations_, DType::kF32));
}

Value GraphBuilder::linear(Value x, Value weight, Value bias, DType dtype) {
  const ops::Attrs attrs = asking_for(dtype, meta(x).dtype);
  return bias.valid() ? apply1("linear_bias", {x, weight, bias}, attrs)
                      : apply1("linear", {x, weight}, attrs);
}

Value GraphBuilder::rms_norm(Value x, std::string_view weight_name, double epsilon) {
  return apply1("rms_norm", {x, weight(weight_name)}, {{"epsilon", epsilon}});
}

Value GraphBuilder::sigmoid(Value x) { return apply1("sigmoid", {x}); }

Value GraphBuilder::add(Value a, Value b) { return apply1("add", {a, b}); }

Value GraphBuilder::mul(Value a, Value b) { return apply1("mul", {a, b}); }

Value GraphBuilder::scale(Value a, double factor) {
  return factor == 1 ? a : apply1("scale", {a}, {{"factor", factor}});
}

Value GraphBuilder::silu_mul(Value gate_up) { return gated("silu_mul", gate_up); }

Value GraphBuilder::gated(std::string_view op, Value gate_up, ops::Attrs attrs) {
  for (const auto& entry : asking_for(activations_, meta(gate_up).dtype).entries()) {
    attrs.set(entry.name, entry.value);
  }
  return apply1(op, {gate_up}, attrs);
}

Value GraphBuilder::rope(Value x, Value positions, Value inverse_frequencies, int64_t head_dim,
                         double factor) {
  return apply1("rope", {x, positions, inverse_frequencies},
                {{"head_dim", static_cast<double>(head_dim)}, {"factor", factor}});
}

Value GraphBuilder::rope_channels(Value x, Value positions, Value inverse_frequencies,
                                  int64_t head_dim, int64_t first, bool interleaved,
                                  double factor) {
  return apply1("rope_channels", {x, positions, inverse_frequencies},
                {{"head_dim", static_cast<double>(head_dim)},
                 {"first_channel", static_cast<double>(first)},
                 {"interleaved", interleaved ? 1.0 : 0.0},
                 {"factor", factor}});
}

std::vector<Value> GraphBuilder::split(Value x, const std::vector<int64_t>& widths) {
  if (!x.valid()) return {};
  std::vector<Value> parts;
  int64_t start = 0;
  for (const int64_t width : widths) {
    parts.push_back(
        apply1("columns", {x},
               {{"start", static_cast<double>(start)}, {"width", static_cast<double>(width)}}));
    start += width;
  }
  if (status_.ok() && meta(x)[meta(x).rank - 1] != ops::SymbolicDim::fixed(start)) {
    fail(invalid_argument(
        fmt::format("split: the parts are {} columns wide together, the value is {}", start,
                    meta(x).to_string())));
  }
  return parts;
}

Value GraphBuilder::concat(Value a, Value b) { return apply1("concat", {a, b}); }

Value GraphBuilder::gather_columns(Value x, const checkpoint::CutPart& part) {
  const int64_t each = checkpoint::own_range(part, {.ranks = rank_.ranks}).count;
  return apply1("gather_columns", {x},
                {{"width", static_cast<double>(part.size)}, {"each", static_cast<double>(each)}});
}

Value GraphBuilder::logit_rows(Value x) { return apply1("logit_rows", {x}); }

void GraphBuilder::output(Value value, std::string name) {
  if (!status_.ok()) return;
  if (!value.valid()) {
    fail(internal_error(fmt::format("the output {} is missing", name)));
    return;
  }
  graph_.info(value).name = std::move(name);
  graph_.outputs.push_back(value);
}

const ops::TensorMeta& GraphBuilder::meta(Value value) const {
  static const ops::TensorMeta kNone;
  return value.id < graph_.values.size() ? graph_.info(value).meta : kNone;
}

Result<Graph> GraphBuilder::finish() {
  if (!status_.ok()) return status_;
  return std::move(graph_);
}

}  // namespace heddle::graph
