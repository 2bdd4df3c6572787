// SPDX-License-Identifier: Apache-2.0
#include "ops/kernel_check_side.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace heddle::ops {

namespace {

constexpr std::array<int32_t, 1> kFirstSlot = {1};

// Upper bounds for the steps of all cases.
constexpr DeviceBatchSizes kLargestStep{.max_rows = 128,
                                        .max_sequences = 1,
                                        .max_pages_per_sequence = 128,
                                        .max_snapshots = 1,
                                        .max_logit_rows = 0};

// Multiples of 2^-7 within [-1, 1]. Their number is a prime, so that the rows of a weight differ.
std::vector<float> make_numbers() {
  std::vector<float> numbers(8191);
  uint64_t state = 1;
  for (float& number : numbers) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    number = static_cast<float>(static_cast<int8_t>(state >> 56)) * 0x1p-7f;
  }
  return numbers;
}

}  // namespace

KernelCheckSide::KernelCheckSide(device::Device& device, device::Stream& stream, Context& context)
    : context_(context), device_(device), stream_(stream), numbers_(make_numbers()) {}

void KernelCheckSide::begin(DType round) {
  round_ = round;
  next_ = 0;
  buffers_.clear();
  tensors_.clear();
  packed_.clear();
  outputs_.clear();
  status_ = {};
}

template <typename Element, typename Convert>
void KernelCheckSide::fill(std::span<Element> to, const Convert& convert) {
  while (!to.empty()) {
    const size_t count = std::min(to.size(), numbers_.size() - next_);
    std::ranges::transform(std::span(numbers_).subspan(next_, count), to.begin(), convert);
    to = to.subspan(count);
    next_ = (next_ + count) % numbers_.size();
  }
}

MutableTensorView KernelCheckSide::random(const Shape& shape) {
  Tensor tensor(shape, dtype());
  if (tensor.dtype() == DType::kBf16) {
    fill(tensor.span<Bf16>(), to_bf16);
  } else {
    fill(tensor.span<float>(), std::identity());
  }
  return put(std::move(tensor));
}

TensorView KernelCheckSide::packed(const Shape& shape, quant::Scheme scheme) {
  const int64_t K = shape[shape.rank() - 1];
  const int64_t N = shape.num_elements() / K;
  std::vector<float> numbers(static_cast<size_t>(N * K));
  fill(std::span(numbers), std::identity());
  const quant::UnpackedMatrix matrix = quant::round_to_nearest(numbers.data(), N, K, scheme, 32);
  const quant::RowFormat& format = matrix.format;
  quant::PackedRows rows{.format = format, .num_rows = N, .rows_per_scale = format.block_rows};
  const auto bytes_of_rows = [](int64_t num_rows, int64_t bytes) {
    return Tensor({num_rows * bytes}, DType::kU8);
  };
  Tensor codes = bytes_of_rows(N, format.code_bytes());
  Tensor scales = bytes_of_rows(rows.num_scale_rows(), format.scale_bytes());
  Tensor zeros = bytes_of_rows(N, format.num_groups());
  rows.codes = codes.view().as<std::byte>();
  rows.scales = scales.view().as<std::byte>();
  if (format.has_zeros) rows.zeros = zeros.view().as<uint8_t>();
  quant::pack_rows(matrix, 0, N, rows, 0);
  rows.codes = put(std::move(codes)).as<std::byte>();
  rows.scales = put(std::move(scales)).as<std::byte>();
  if (format.has_zeros) rows.zeros = put(std::move(zeros)).as<uint8_t>();
  packed_.push_back(std::make_unique<quant::PackedWeight>());
  packed_.back()->on_gpu = !on_cpu();
  packed_.back()->parts.push_back({.num_rows = N, .packed = rows});
  TensorView view(nullptr, DType::kPacked, shape);
  view.packed = packed_.back().get();
  return view;
}

MutableTensorView KernelCheckSide::floats(const Shape& shape, float low, float high) {
  Tensor tensor(shape, DType::kF32);
  const float middle = (low + high) / 2;
  fill(tensor.span<float>(), [=](float number) { return middle + (high - middle) * number; });
  return put(std::move(tensor));
}

MutableTensorView KernelCheckSide::integers(const std::vector<int32_t>& values) {
  Tensor tensor({std::ssize(values)}, DType::kI32);
  std::ranges::copy(values, tensor.span<int32_t>().begin());
  return put(std::move(tensor));
}

MutableTensorView KernelCheckSide::room(const Shape& shape, DType dtype) {
  if (on_cpu()) return tensors_.emplace_back(shape, dtype).view();
  MutableTensorView view(nullptr, dtype, shape);
  Result<device::Buffer> buffer = device_.allocate(std::max<int64_t>(view.num_bytes(), 1));
  keep(buffer.status());
  if (!buffer.ok()) return view;
  view.data = buffer->data();
  buffers_.push_back(std::move(buffer).value());
  return view;
}

std::span<std::byte> KernelCheckSide::workspace(int64_t num_bytes) {
  const MutableTensorView view = room({num_bytes}, DType::kU8);
  return {view.as<std::byte>(), static_cast<size_t>(num_bytes)};
}

MutableTensorView KernelCheckSide::changed(const MutableTensorView& view) {
  outputs_.push_back(view);
  return view;
}

ForwardContext& KernelCheckSide::step(const CheckStep& step) {
  query_start_ = {0, step.rows};
  context_lens_ = {step.context};
  pages_.resize(static_cast<size_t>((step.context + step.rows + kPageSize - 1) / kPageSize));
  std::iota(pages_.begin(), pages_.end(), 1);
  forward_ = {.query_start = query_start_,
              .context_lens = context_lens_,
              .page_tables = {pages_},
              .page_table_width = std::ssize(pages_),
              .page_size = kPageSize,
              .state_slots = kFirstSlot};
  if (step.snapshot_tokens > 0) {
    snapshots_ = {StateSnapshot{.num_tokens = step.snapshot_tokens, .slot = 1}};
    forward_.snapshots = snapshots_;
  }
  if (step.has_tree) {
    const int32_t num_chain = step.rows - CheckStep::kTreeNodes;
    tree_starts_ = {step.context + num_chain};
    tree_masks_.assign(static_cast<size_t>(num_chain), 0);
    tree_masks_.insert(tree_masks_.end(), {0b001, 0b011, 0b101});
    forward_.tree_starts = tree_starts_;
    forward_.tree_masks = tree_masks_;
  }
  if (!on_cpu()) keep(upload(step.rows));
  return forward_;
}

Result<std::vector<Tensor>> KernelCheckSide::results() {
  HEDDLE_RETURN_IF_ERROR(status_);
  std::vector<Tensor> tensors;
  for (const MutableTensorView& output : outputs_) {
    Tensor& tensor = tensors.emplace_back(output.shape, output.dtype);
    HEDDLE_RETURN_IF_ERROR(stream_.copy(tensor.view().data, output.data, tensor.num_bytes()));
  }
  HEDDLE_RETURN_IF_ERROR(stream_.synchronize());
  return tensors;
}

void KernelCheckSide::keep(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

MutableTensorView KernelCheckSide::put(Tensor tensor) {
  tensors_.push_back(std::move(tensor));
  Tensor& kept = tensors_.back();
  if (on_cpu()) return kept.view();
  const MutableTensorView view = room(kept.shape(), kept.dtype());
  if (view.data != nullptr) keep(stream_.copy(view.data, kept.view().data, kept.num_bytes()));
  return view;
}

Status KernelCheckSide::upload(int32_t num_rows) {
  if (!batch_) {
    HEDDLE_ASSIGN_OR_RETURN(batch_, DeviceBatchUpload::create(device_, kLargestStep));
  }
  const std::vector<int32_t> zeros(static_cast<size_t>(num_rows));
  return batch_->upload(context(), stream_, zeros, zeros, forward_);
}

}  // namespace heddle::ops
