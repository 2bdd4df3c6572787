// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load_weights.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/convert.h"
#include "checkpoint/copy_job.h"
#include "checkpoint/readable.h"
#include "checkpoint/weight_jobs.h"
#include "core/check.h"
#include "core/log.h"
#include "device/available_memory.h"

namespace heddle::checkpoint {

namespace {

constexpr int64_t kWeightAlignment = 64;  // bytes: a cache line, and the widest vector load

double gibibytes(int64_t bytes) { return static_cast<double>(bytes) / 1073741824.0; }

bool is_rotary_table(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

// A key of config.json that decides whether files contain the tensors whose names have a certain
// ending.
struct DecidingKey {
  std::string_view ending;
  std::string_view keys;
};

constexpr DecidingKey kDecidingKeys[] = {
    {"mamba.norm.weight", "mamba_rms_norm"},
    {"q_norm.weight", "use_qk_norm"},
    {"k_norm.weight", "use_qk_norm"},
    {"q_proj.bias", "attention_bias (qkv_bias)"},
    {"k_proj.bias", "attention_bias (qkv_bias)"},
    {"v_proj.bias", "attention_bias (qkv_bias)"},
    {"o_proj.bias", "attention_bias (attention_out_bias)"},
    {"gate_proj.bias", "mlp_bias"},
    {"up_proj.bias", "mlp_bias"},
    {"down_proj.bias", "mlp_bias"},
    {"conv1d.bias", "use_conv_bias (mamba_conv_bias)"},
    {"conv.conv.bias", "conv_bias"},
    {"in_proj.bias", "mamba_proj_bias (use_bias)"},
    {"out_proj.bias", "mamba_proj_bias (use_bias, projectors_bias)"},
    {"lm_head.bias", "lm_head_bias"},
    {"expert_bias", "use_expert_bias"},
    {"shared_expert_gate.weight", "shared_expert_intermediate_size"},
};

// Aborts unless the runs stay inside their tensors and cover the weight exactly once.
void check_coverage(const WeightSpec& spec, const Assembly& assembly) {
  std::vector<std::pair<int64_t, int64_t>> covered;  // (first element in the weight, number of
                                                     // elements)
  for (const HubPiece& piece : assembly) {
    const int64_t width = row_width(piece);
    if (piece.columns) {
      HEDDLE_CHECK(piece.form != RowForm::kElement && piece.columns->first >= 0 && width > 0 &&
                   piece.columns->first + width <= stored_row_width(piece));
    }
    if (piece.form == RowForm::kLastDimension) HEDDLE_CHECK_EQ(row_width(spec.shape), width);
    for (const RowRun& run : piece.runs) {
      HEDDLE_CHECK(run.source_row >= 0 && run.num_rows >= 0 && run.source_step >= 1);
      const int64_t last = run.source_row + (run.num_rows - 1) * run.source_step;
      HEDDLE_CHECK(run.num_rows == 0 || last < num_rows(piece));
      covered.emplace_back(run.target_row * width, run.num_rows * width);
    }
  }
  std::sort(covered.begin(), covered.end());
  int64_t next = 0;
  for (const auto& [first, count] : covered) {
    HEDDLE_CHECK_EQ(first, next);
    next += count;
  }
  HEDDLE_CHECK_EQ(next, spec.shape.num_elements());
}

}  // namespace

// One load, step by step: choose, check, place, copy.
class WeightLoader {
 public:
  WeightLoader(const WeightSource& source, std::span<const WeightSpec> specs,
               const LoadOptions& options)
      : source_(source),
        specs_(specs),
        options_(options),
        dtype_(options.dtype),
        modules_(source, options.quantization, options.device != nullptr) {}

  // Finds every weight in the source and plans where in memory it goes.
  Status plan() {
    if (options_.dtype && !is_convertible(*options_.dtype)) {
      return invalid_argument(
          fmt::format("weights cannot be loaded as {}; use float32, bfloat16 or float16",
                      to_string(*options_.dtype)));
    }
    if (on_device() && !dtype_) dtype_ = first_stored_dtype();
    for (const WeightSpec& spec : specs_) HEDDLE_RETURN_IF_ERROR(resolve(spec));
    find_unexpected();
    return findings();
  }

  [[nodiscard]] int64_t arena_bytes() const { return arena_bytes_; }

  Result<LoadedWeights> load(std::unique_ptr<const WeightSource> owner) {
    HEDDLE_RETURN_IF_ERROR(plan());
    warn_of_plain_weights();
    HEDDLE_RETURN_IF_ERROR(check_memory());
    HEDDLE_ASSIGN_OR_RETURN(std::byte* const arena, allocate());
    for (const Placement& placement : placements_) {
      loaded_.weights_.find(placement.spec->name)->second.data = arena + placement.begin;
      cut_into_jobs(placement);
    }
    loaded_.run_dtype_ = dtype_.value_or(first_plain_dtype_.value_or(DType::kBf16));
    for (PackedPlacement& weight : packed_) {
      if (weight.dense_begin) {
        loaded_.weights_.find(weight.name)->second.data = arena + *weight.dense_begin;
      } else {
        weight.load.bind(arena, loaded_.run_dtype_ != DType::kF32, on_gpu());
      }
    }
    HEDDLE_RETURN_IF_ERROR(run_weight_jobs({.source = source_,
                                            .pieces = pieces_,
                                            .copies = jobs_,
                                            .packed = packed_,
                                            .dequantised_dtype = loaded_.run_dtype_,
                                            .arena = arena},
                                           options_));
    HEDDLE_RETURN_IF_ERROR(on_device() ? copy_to_host() : show_on_host());
    for (PackedPlacement& weight : packed_) {
      if (!weight.dense_begin) loaded_.packed_.push_back(std::move(weight.load.weight()));
    }
    if (loaded_.bytes_in_place_ > 0) loaded_.source_ = std::move(owner);
    return std::move(loaded_);
  }

 private:
  // Up to eight examples of one kind of disagreement, and how many there were.
  class Findings {
   public:
    explicit Findings(std::string_view kind) : kind_(kind) {}

    void add(std::string example) {
      constexpr size_t kMaxExamples = 8;
      if (examples_.size() < kMaxExamples) examples_.push_back(std::move(example));
      ++count_;
    }

    [[nodiscard]] bool empty() const { return count_ == 0; }

    [[nodiscard]] std::string to_string() const {
      return fmt::format("{} {}: {}{}", count_, kind_, fmt::join(examples_, ", "),
                         count_ > examples_.size() ? ", ..." : "");
    }

   private:
    std::string_view kind_;
    std::vector<std::string> examples_;
    size_t count_ = 0;
  };

  // Warns if config.json announces quantised weights and none is quantised. Silent if only a part
  // of the checkpoint is loaded: that part may be plain while the rest is quantised.
  void warn_of_plain_weights() const {
    const QuantizationConfig* const config = options_.quantization;
    const bool is_of_part = std::ranges::count(options_.ignored_prefixes, "") > 0;
    if (config == nullptr || !config->is_of_weights || !used_by_modules_.empty() || is_of_part ||
        source_.names().empty()) {
      return;
    }
    const auto matrix = std::ranges::find_if(
        pieces_, [](const StoredWeight& stored) { return stored.shape.rank() > 1; });
    if (matrix == pieces_.end()) return;
    log_warning(fmt::format(
        "quantization_config says that weights are quantised ({}), but none of those that are read "
        "is: tensor {} is stored as {}. They are used as they are stored",
        to_string(config->method), readable(matrix->name), matrix->stored_dtype));
  }

  // Checks free memory. The kernel commits memory when it is written: without this check, the
  // process would be killed halfway through loading too large a model.
  [[nodiscard]] Status check_memory() const {
    const int64_t available = on_device() ? options_.device->available_memory_bytes()
                                          : device::available_host_memory_bytes();
    if (arena_bytes_ <= available) return {};
    return resource_exhausted(
        fmt::format("the weights need {:.2f} GiB, {} has {:.2f} GiB of free memory; use a "
                    "smaller model, a quantised one or a 16-bit --dtype",
                    gibibytes(arena_bytes_), on_device() ? options_.device->name() : "the machine",
                    gibibytes(available)));
  }

  [[nodiscard]] bool on_device() const { return options_.device != nullptr; }

  [[nodiscard]] bool on_gpu() const {
    return on_device() && options_.device->kind() == device::DeviceKind::kCuda;
  }

  // The dtype of the first unquantised weight with WeightDType::kRun; bf16 if there is none.
  [[nodiscard]] DType first_stored_dtype() const {
    for (const WeightSpec& spec : specs_) {
      if (spec.dtype != WeightDType::kRun) continue;
      for (const HubPiece& piece : choose(spec)) {
        if (modules_.contains(piece.tensor.name)) continue;
        const std::optional<StoredWeight> stored = source_.find(request(spec, piece));
        if (stored && stored->dtype && is_convertible(*stored->dtype)) return *stored->dtype;
      }
    }
    return DType::kBf16;
  }

  // Allocates the memory of all weights.
  Result<std::byte*> allocate() {
    if (!on_device()) {
      HEDDLE_ASSIGN_OR_RETURN(loaded_.arena_, device::HostBuffer::allocate(arena_bytes_));
      return loaded_.arena_.data();
    }
    HEDDLE_ASSIGN_OR_RETURN(loaded_.device_arena_, options_.device->allocate(arena_bytes_));
    if (kept_bytes_ > 0) {
      log_info(fmt::format("{} quantised weights stay packed: {:.2f} GiB, {:.2f} as {}",
                           std::ssize(packed_) - num_dequantised_, gibibytes(kept_bytes_),
                           gibibytes(kept_as_dense_bytes_), to_string(*dtype_)));
    }
    if (dequantised_bytes_ > 0) {
      log_info(fmt::format(
          "{} quantised weights are dequantised to {} while they load, because their columns are "
          "read, too, or their rows are looked up: {:.2f} GiB become {:.2f}",
          num_dequantised_, to_string(*dtype_), gibibytes(packed_bytes_),
          gibibytes(dequantised_bytes_)));
    }
    for (const auto& [type, sum] : unpacked_blocks_) {
      log_info(fmt::format(
          "{} tensors of {} are dequantised to {} while they load, because a GPU's packed rows "
          "have "
          "no minima: {:.2f} GiB become {:.2f}; --quantization int4-g32 or int8 rounds them again "
          "to a packed format",
          sum.tensors, type, to_string(*dtype_), gibibytes(sum.block_bytes),
          gibibytes(sum.dense_bytes)));
    }
    return loaded_.device_arena_.data();
  }

  // Makes copies in host memory of the weights that the host reads.
  Status show_on_host() {
    for (const WeightSpec& spec : specs_) {
      if (spec.on_host) loaded_.on_host_.emplace(spec.name, loaded_[spec.name]);
    }
    return ok_status();
  }

  Status copy_to_host() {
    std::vector<std::pair<const Placement*, int64_t>> copies;  // with the offsets of the copies
    int64_t num_bytes = 0;
    for (const Placement& placement : placements_) {
      if (!placement.spec->on_host) continue;
      copies.emplace_back(&placement, num_bytes);
      num_bytes += bytes_of(placement.dtype, placement.spec->shape.num_elements());
    }
    HEDDLE_ASSIGN_OR_RETURN(loaded_.arena_, device::HostBuffer::allocate(num_bytes));
    for (const auto& [placement, begin] : copies) {
      jobs_.clear();
      Placement copy = *placement;
      copy.begin = begin;
      cut_into_jobs(copy);
      for (const CopyJob& job : jobs_) {
        run_copy_job(source_, pieces_[job.piece], job, loaded_.arena_.data());
      }
      loaded_.on_host_.emplace(
          copy.spec->name, TensorView(loaded_.arena_.data() + begin, copy.dtype, copy.spec->shape));
    }
    return ok_status();
  }

  // A weight that is copied: its hub tensors and its offset in the arena.
  struct Placement {
    const WeightSpec* spec;
    const Assembly* assembly;
    size_t first_piece;
    DType dtype;
    int64_t begin;
  };

  // Finds the hub tensors of one weight and decides where the weight will be in memory.
  Status resolve(const WeightSpec& spec) {
    const Assembly& assembly = choose(spec);
    check_coverage(spec, assembly);
    if (is_packed(spec, assembly)) return resolve_packed(spec, assembly);
    const size_t first_piece = pieces_.size();
    std::optional<DType> dtype;
    bool good = true;
    for (const HubPiece& piece : assembly) {
      const std::optional<StoredWeight> stored = source_.find(request(spec, piece));
      if (!stored) {
        miss(piece.tensor.name);
        good = false;
        continue;
      }
      used_.insert(stored->name);
      pieces_.push_back(*stored);
      if (on_device()) note_unpacked_blocks(spec, *stored);
      good = check_stored(spec, piece, *stored) && good;
      if (!dtype) dtype = target_dtype(spec, *stored);
    }
    if (!good) return ok_status();  // the collected findings are reported together, later
    HEDDLE_CHECK(dtype.has_value());
    HEDDLE_CHECK(spec.offset == 0 || *dtype == DType::kF32);

    for (size_t i = first_piece; i < pieces_.size(); ++i) {
      if (pieces_[i].dtype != dtype &&
          !(is_convertible(*pieces_[i].dtype) && is_convertible(*dtype))) {
        wrong_dtype_.add(fmt::format("{} is {}, its siblings are {}", pieces_[i].name,
                                     pieces_[i].stored_dtype, to_string(*dtype)));
        return ok_status();
      }
    }
    if (spec.dtype == WeightDType::kRun && !first_plain_dtype_) first_plain_dtype_ = dtype;
    const TensorView view(nullptr, *dtype, spec.shape);
    const auto [found, added] = loaded_.weights_.emplace(spec.name, view);
    HEDDLE_CHECK(added);
    loaded_.num_parameters_ += view.num_elements();
    if (in_place(spec, assembly, pieces_[first_piece], *dtype)) {
      found->second.data = pieces_[first_piece].data;
      loaded_.bytes_in_place_ += view.num_bytes();
      return ok_status();
    }
    return place(spec, assembly, first_piece, *dtype);
  }

  // Counts blocks that the host would keep packed and the device cannot.
  void note_unpacked_blocks(const WeightSpec& spec, const StoredWeight& stored) {
    if (!stored.blocks || spec.dtype != WeightDType::kRun) return;
    const int64_t K = stored.blocks->K;
    if (quant::packed_format(stored.blocks->type, K, /*on_gpu=*/true)) return;
    const int64_t num_elements = stored.shape.num_elements();
    UnpackedBlocks& sum = unpacked_blocks_[stored.stored_dtype];
    ++sum.tensors;
    sum.block_bytes += num_elements / K * stored.blocks->row_bytes();
    sum.dense_bytes += bytes_of(*dtype_, num_elements);
  }

  bool is_packed(const WeightSpec& spec, const Assembly& assembly) const {
    if (spec.dtype != WeightDType::kRun || spec.shape.rank() < 2) return false;
    return std::ranges::any_of(assembly, [&](const HubPiece& piece) {
      return has_codes(piece) || is_rounded(spec, piece);
    });
  }

  // Whether the piece is quantised in the checkpoint and stays quantised.
  bool has_codes(const HubPiece& piece) const {
    if (!modules_.contains(piece.tensor.name)) return false;
    return piece.form == RowForm::kLastDimension || !modules_.is_readable(piece.tensor.name);
  }

  bool is_rounded(const WeightSpec& spec, const HubPiece& piece) const {
    return options_.rounding && spec.packing != Packing::kLookedUp &&
           piece.form != RowForm::kElement &&
           is_quantisable(piece.tensor.name, piece.tensor.shape.rank(),
                          options_.rounding->include_lm_head) &&
           width_fits(stored_row_width(piece), *options_.rounding);
  }

  // As resolve(), for a weight with hub tensors that are quantised, or are quantised while they
  // load.
  Status resolve_packed(const WeightSpec& spec, const Assembly& assembly) {
    const Rounding rounding = options_.rounding.value_or(Rounding{});
    std::vector<PackedLoad::Origin> origins;
    bool good = true;
    for (const HubPiece& piece : assembly) {
      PackedLoad::Origin origin{.piece = &piece};
      Result<std::optional<QuantisedModule>> module = modules_.find(piece, used_by_modules_);
      if (!module.ok()) {
        if (module.status().code() == StatusCode::kUnimplemented) return module.status();
        unreadable_.add(module.status().message());
        used_.insert(piece.tensor.name);
        good = false;
        continue;
      }
      origin.module = std::move(module).value();
      if (!origin.module) {
        const std::optional<StoredWeight> stored = source_.find(request(spec, piece));
        if (!stored) {
          miss(piece.tensor.name);
          good = false;
          continue;
        }
        used_.insert(stored->name);
        good = check_stored(spec, piece, *stored) && good;
        if (!good) continue;
        origin.stored = *stored;
        origin.plain_dtype = *target_dtype(spec, *stored);
        if (is_rounded(spec, piece)) {
          origin.rounded =
              quant::format_of(rounding.scheme, stored_row_width(piece), rounding.group_size);
        }
      }
      origins.push_back(std::move(origin));
    }
    if (!good) return ok_status();
    HEDDLE_ASSIGN_OR_RETURN(PackedLoad load, PackedLoad::plan(spec, std::move(origins), rounding));
    const bool dense =
        on_device() && (spec.packing == Packing::kColumns || spec.packing == Packing::kLookedUp);
    TensorView view(nullptr, dense ? *dtype_ : DType::kPacked, spec.shape);
    if (!dense) view.packed = load.weight().get();
    const auto [found, added] = loaded_.weights_.emplace(spec.name, view);
    HEDDLE_CHECK(added);
    loaded_.num_parameters_ += view.num_elements();
    // The dtype of a run is that of its first plain weight. A packed embedding table has none, and
    // weights after it do not decide the dtype of the activations.
    if (spec.packing == Packing::kLookedUp && !first_plain_dtype_) {
      first_plain_dtype_ = DType::kBf16;
    }
    std::optional<int64_t> dense_begin;
    if (dense) {
      HEDDLE_ASSIGN_OR_RETURN(dense_begin, reserve(view.num_bytes()));
      ++num_dequantised_;
      dequantised_bytes_ += view.num_bytes();
      packed_bytes_ += load.packed_bytes();
    } else {
      kept_bytes_ += load.packed_bytes();
      if (on_device()) kept_as_dense_bytes_ += bytes_of(*dtype_, view.num_elements());
      arena_bytes_ = load.place(arena_bytes_, on_device());
    }
    packed_.push_back({.load = std::move(load), .name = spec.name, .dense_begin = dense_begin});
    return ok_status();
  }

  const Assembly& choose(const WeightSpec& spec) const {
    HEDDLE_CHECK(!spec.alternatives.empty());
    const Assembly* misshaped = nullptr;
    for (const Assembly& assembly : spec.alternatives) {
      for (const HubPiece& piece : assembly) {
        if (modules_.contains(piece.tensor.name)) return assembly;
        const auto stored = source_.find(request(spec, piece));
        if (stored && stored->shape == piece.tensor.shape) return assembly;
        if (stored && misshaped == nullptr) misshaped = &assembly;
      }
    }
    return misshaped != nullptr ? *misshaped : spec.alternatives.front();
  }

  static WeightRequest request(const WeightSpec& spec, const HubPiece& piece) {
    return {.name = piece.tensor.name, .shape = piece.tensor.shape, .initial = spec.initial};
  }

  bool check_stored(const WeightSpec& spec, const HubPiece& piece, const StoredWeight& stored) {
    if (stored.shape != piece.tensor.shape) {
      misshaped_.add(fmt::format("{} is {}, the model needs {}", stored.name,
                                 stored.shape.to_string(), piece.tensor.shape.to_string()));
      return false;
    }
    const bool readable_dtype =
        stored.dtype && (spec.dtype == WeightDType::kStored || is_convertible(*stored.dtype));
    if (!readable_dtype) {
      wrong_dtype_.add(fmt::format("{} is {}, the model needs F32, BF16 or F16", stored.name,
                                   stored.stored_dtype));
    }
    return readable_dtype;
  }

  std::optional<DType> target_dtype(const WeightSpec& spec, const StoredWeight& stored) const {
    if (spec.dtype == WeightDType::kF32) return DType::kF32;
    if (spec.dtype == WeightDType::kRun && dtype_) return dtype_;
    return stored.dtype;
  }

  bool in_place(const WeightSpec& spec, const Assembly& assembly, const StoredWeight& stored,
                DType dtype) const {
    if (options_.copy_to_huge_pages || on_device() || stored.data == nullptr ||
        stored.dtype != dtype || spec.offset != 0 || assembly.size() != 1 ||
        assembly[0].runs.size() != 1 || assembly[0].runs[0].source_row != 0 ||
        assembly[0].runs[0].source_step != 1 || assembly[0].columns ||
        assembly[0].form == RowForm::kInputMajor) {
      return false;
    }
    const auto alignment = static_cast<uintptr_t>(std::max<int64_t>(bits_of(dtype) / 8, 1));
    return reinterpret_cast<uintptr_t>(stored.data) % alignment == 0;
  }

  Status place(const WeightSpec& spec, const Assembly& assembly, size_t first_piece, DType dtype) {
    HEDDLE_ASSIGN_OR_RETURN(const int64_t begin,
                            reserve(bytes_of(dtype, spec.shape.num_elements())));
    placements_.push_back({&spec, &assembly, first_piece, dtype, begin});
    return ok_status();
  }

  // Reserves `num_bytes` in the arena and returns their byte offset.
  Result<int64_t> reserve(int64_t num_bytes) {
    const int64_t begin = arena_bytes_;
    int64_t end = 0;
    if (__builtin_add_overflow(begin, num_bytes, &end) ||
        __builtin_add_overflow(end, kWeightAlignment, &end)) {
      return resource_exhausted("the weights' sizes do not fit into 64 bits");
    }
    arena_bytes_ = (end - 1) / kWeightAlignment * kWeightAlignment;
    return begin;
  }

  void cut_into_jobs(const Placement& placement) {
    for (size_t i = 0; i < placement.assembly->size(); ++i) {
      append_copy_jobs((*placement.assembly)[i],
                       {.piece = placement.first_piece + i,
                        .target_byte = placement.begin,
                        .dtype = placement.dtype,
                        .offset = placement.spec->offset},
                       jobs_);
    }
  }

  void find_unexpected() {
    // Tensors of alternatives that were not chosen are known: another layout of a weight that was
    // found.
    for (const WeightSpec& spec : specs_) {
      if (spec.alternatives.size() < 2) continue;
      for (const Assembly& assembly : spec.alternatives) {
        for (const HubPiece& piece : assembly) used_.insert(piece.tensor.name);
      }
    }
    for (const std::string_view name : source_.names()) {
      const bool ignored =
          is_rotary_table(name) ||
          std::any_of(options_.ignored_prefixes.begin(), options_.ignored_prefixes.end(),
                      [name](const std::string& prefix) { return name.starts_with(prefix); });
      if (!ignored && !used_.contains(name) && !used_by_modules_.contains(std::string(name)) &&
          !modules_.ignorable(name)) {
        unexpected_.add(readable(name));
        note_deciding_key(name);
      }
    }
  }

  void miss(const std::string& name) {
    missing_.add(name);
    note_deciding_key(name);
  }

  void note_deciding_key(std::string_view name) {
    for (const DecidingKey& key : kDecidingKeys) {
      if (name.ends_with(key.ending)) deciding_keys_.insert(key.keys);
    }
  }

  [[nodiscard]] Status findings() const {
    std::vector<std::string> parts;
    for (const Findings* kind :
         {&unreadable_, &missing_, &unexpected_, &misshaped_, &wrong_dtype_}) {
      if (!kind->empty()) parts.push_back(kind->to_string());
    }
    if (parts.empty()) return ok_status();
    if (!deciding_keys_.empty()) {
      parts.push_back(
          fmt::format("keys of config.json that may decide this, where the family reads them: {}",
                      fmt::join(deciding_keys_, ", ")));
    }
    return invalid_argument(
        fmt::format("the checkpoint does not fit its config.json: {}", fmt::join(parts, "; ")));
  }

  const WeightSource& source_;
  std::span<const WeightSpec> specs_;
  const LoadOptions& options_;
  std::optional<DType> dtype_;  // dtype of WeightDType::kRun; none: as stored

  LoadedWeights loaded_;
  std::vector<StoredWeight> pieces_;
  std::unordered_set<std::string_view> used_;  // hub names of the tensors that weights use
  std::vector<Placement> placements_;
  std::vector<CopyJob> jobs_;
  QuantisedModules modules_;
  std::unordered_set<std::string> used_by_modules_;  // hub names of the tensors of quantised
                                                     // modules
  std::vector<PackedPlacement> packed_;
  int64_t kept_bytes_ = 0;  // bytes of the weights that stay packed
  int64_t kept_as_dense_bytes_ = 0;
  int64_t num_dequantised_ = 0;    // number of packed_ weights that are dequantised, on a device
  int64_t dequantised_bytes_ = 0;  // bytes of the dequantised weights after dequantisation
  int64_t packed_bytes_ = 0;       // bytes of the dequantised weights while they were packed

  struct UnpackedBlocks {
    int64_t tensors = 0;
    int64_t block_bytes = 0;
    int64_t dense_bytes = 0;
  };

  // blocks that a device cannot keep packed, by stored type
  std::map<std::string_view, UnpackedBlocks> unpacked_blocks_;
  int64_t arena_bytes_ = 0;
  std::optional<DType> first_plain_dtype_;  // dtype of the first plain weight of WeightDType::kRun

  std::set<std::string_view> deciding_keys_;  // keys that explain missing or unexpected tensors
  Findings missing_{"missing"};
  Findings unexpected_{"unexpected"};
  Findings misshaped_{"of another shape"};
  Findings wrong_dtype_{"of another dtype"};
  Findings unreadable_{"quantised in a way that cannot be read"};
};

Result<LoadedWeights> load_weights(std::unique_ptr<const WeightSource> source,
                                   std::span<const WeightSpec> specs, const LoadOptions& options) {
  HEDDLE_CHECK(source != nullptr);
  const WeightSource& reference = *source;
  return WeightLoader(reference, specs, options).load(std::move(source));
}

Result<int64_t> bytes_to_load(const WeightSource& source, std::span<const WeightSpec> specs,
                              const LoadOptions& options) {
  WeightLoader loader(source, specs, options);
  HEDDLE_RETURN_IF_ERROR(loader.plan());
  return loader.arena_bytes();
}

}  // namespace heddle::checkpoint
