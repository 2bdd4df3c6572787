// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/merged_weights.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/convert.h"
#include "checkpoint/readable.h"
#include "core/check.h"

namespace heddle::checkpoint {

namespace {

// Rounds towards minus infinity; `divisor` is positive.
int64_t floor_div(int64_t value, int64_t divisor) {
  return value / divisor - (value % divisor < 0 ? 1 : 0);
}

// Where adapters and files spell one module in several ways: text models inside of others, and
// transformers' own renaming.
std::string canonical(std::string_view name) {
  std::string text(name);
  for (const auto& [prefix, instead] :
       {std::pair<std::string_view, std::string_view>("model.language_model.", "model."),
        {"language_model.model.", "model."},
        {"language_model.", ""}}) {
    if (!text.starts_with(prefix)) continue;
    text = std::string(instead) + text.substr(prefix.size());
    break;
  }
  constexpr std::string_view kOld = ".block_sparse_moe.";
  const size_t at = text.find(kOld);
  return at == std::string::npos ? text : text.replace(at, kOld.size(), ".mlp.");
}

std::vector<float> as_floats(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.num_elements()));
  convert_elements(view.data, view.dtype, values.data(), DType::kF32, view.num_elements());
  return values;
}

// [rows, columns] -> [columns, rows]
std::vector<float> transposed(const std::vector<float>& values, int64_t rows, int64_t columns) {
  std::vector<float> out(values.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      out[static_cast<size_t>(column * rows + row)] =
          values[static_cast<size_t>(row * columns + column)];
    }
  }
  return out;
}

}  // namespace

// The sizes of a linear weight, or of a stack of them, and where their elements are.
struct MergedWeights::Layout {
  int64_t num_stacked = 1;
  int64_t N = 0;
  int64_t K = 0;
  bool input_major = false;  // each stored as [K, N]

  // None of a tensor that is no matrix.
  static std::optional<Layout> of(const Shape& shape, RowForm form) {
    const int rank = shape.rank();
    if (rank < 2 || rank > 3 || form == RowForm::kElement) return std::nullopt;
    const bool input_major = form == RowForm::kInputMajor;
    return Layout{.num_stacked = rank == 3 ? shape[0] : 1,
                  .N = shape[input_major ? rank - 1 : rank - 2],
                  .K = shape[input_major ? rank - 2 : rank - 1],
                  .input_major = input_major};
  }
};

// A low-rank addition to a grid of a stored tensor's elements: element (i, j) of the grid gets
// scale * sum over r of outer[r, i] * inner[r, j].
struct MergedWeights::Term {
  // Element [r, i] lies at data[r * rank_step + i * step].
  struct Factor {
    const float* data = nullptr;
    int64_t rank_step = 0;
    int64_t step = 1;
  };

  Factor outer;
  Factor inner;
  int64_t rank = 0;
  double scale = 0;
  int64_t first_element = 0;
  int64_t outer_count = 0;
  int64_t outer_step = 1;  // in elements of the tensor
  int64_t inner_count = 0;
  int64_t inner_step = 1;

  // Adds to `values`, which are the tensor's elements [first, first + count). `sums` is scratch of
  // inner_count numbers.
  void add(int64_t first, int64_t count, double* values, std::vector<double>& sums) const {
    const int64_t last = first + count - 1;
    const int64_t extent = (inner_count - 1) * inner_step;
    const int64_t first_outer =
        std::max<int64_t>(0, -floor_div(first_element + extent - first, outer_step));
    const int64_t last_outer =
        std::min(outer_count - 1, floor_div(last - first_element, outer_step));
    for (int64_t i = first_outer; i <= last_outer; ++i) {
      const int64_t base = first_element + i * outer_step;
      const int64_t begin = std::max<int64_t>(0, -floor_div(base - first, inner_step));
      const int64_t end = std::min(inner_count, floor_div(last - base, inner_step) + 1);
      if (begin >= end) continue;
      sums.assign(static_cast<size_t>(end - begin), 0);
      for (int64_t r = 0; r < rank; ++r) {
        const double factor = outer.data[r * outer.rank_step + i * outer.step];
        const float* const row = inner.data + r * inner.rank_step + begin * inner.step;
        for (int64_t j = 0; j < end - begin; ++j) {
          sums[static_cast<size_t>(j)] += factor * row[j * inner.step];
        }
      }
      for (int64_t j = begin; j < end; ++j) {
        values[base + j * inner_step - first] += scale * sums[static_cast<size_t>(j - begin)];
      }
    }
  }
};

// Finds the tensors that adapters change.
class MergedWeights::Placer {
 public:
  Placer(MergedWeights& merged, std::span<const WeightSpec> specs) : merged_(merged) {
    const auto index = [&](auto&& name_of) {
      for (const WeightSpec& spec : specs) {
        for (const Assembly& assembly : spec.alternatives) {
          for (const HubPiece& piece : assembly) {
            places_.emplace(name_of(piece.tensor.name), Place{&spec, &piece});
          }
        }
      }
    };
    index([](const std::string& name) { return name; });
    index([](const std::string& name) { return canonical(name); });
  }

  Status place(const ScaledAdapter& adapter) {
    const std::vector<AdapterUpdate>& updates = adapter.files.updates();
    for (size_t begin = 0; begin < updates.size();) {
      size_t end = begin + 1;
      while (end < updates.size() && updates[end].module == updates[begin].module) ++end;
      const Status status = place_module(adapter, std::span(updates).subspan(begin, end - begin));
      if (!status.ok()) return status.with_context(adapter.files.folder().string());
      begin = end;
    }
    for (const SavedBaseWeight& saved : adapter.files.saved_base_weights()) {
      if (Status status = check_saved(saved); !status.ok()) {
        return status.with_context(adapter.files.folder().string());
      }
    }
    return ok_status();
  }

 private:
  struct Place {
    const WeightSpec* spec = nullptr;  // null: a tensor that the weight map does not have
    const HubPiece* piece = nullptr;
  };

  // An update of one matrix or one stack of them.
  struct Factors {
    const float* a = nullptr;  // [num_stacked * rank, K]
    const float* b = nullptr;  // [rank * num_stacked, N]: transposed
    int64_t rank = 0;
    double scale = 0;
    Layout layout;
  };

  // The updates of one module, the innermost first.
  Status place_module(const ScaledAdapter& adapter, std::span<const AdapterUpdate> updates) {
    const AdapterConfig& config = adapter.files.config();
    const std::string& module = updates.front().module;
    const std::string weight = module + ".weight";
    const std::vector<std::string> parameters = config.parameters_of(module);
    if (updates.size() == 1 && find_place(weight)) {
      const bool is_parameter =
          std::ranges::find(parameters, "weight") != parameters.end() && !config.targets(module);
      return place_update(adapter, updates[0], weight, is_parameter ? weight : module);
    }
    bool all_found = parameters.size() == updates.size();
    for (const std::string& parameter : parameters) {
      all_found = all_found && find_place(module + "." + parameter).has_value();
    }
    if (!all_found) return no_place(adapter, module);
    for (size_t i = 0; i < updates.size(); ++i) {
      const std::string path = module + "." + parameters[i];
      HEDDLE_RETURN_IF_ERROR(place_update(adapter, updates[i], path, path));
    }
    return ok_status();
  }

  // `name` is the tensor's, `path` what rank_pattern and alpha_pattern are matched with.
  Status place_update(const ScaledAdapter& adapter, const AdapterUpdate& update,
                      const std::string& name, const std::string& path) {
    const Place place = *find_place(name);
    std::string stored_name = place.piece != nullptr ? place.piece->tensor.name : name;
    const std::optional<StoredWeight> stored =
        merged_.base_->find({.name = stored_name, .shape = {}});
    const Shape shape = place.piece != nullptr ? place.piece->tensor.shape : stored->shape;
    const auto layout =
        Layout::of(shape, place.piece != nullptr ? place.piece->form : RowForm::kLastDimension);
    if (!layout) {
      return invalid_argument(
          fmt::format("module {} is a tensor {} in the base; only adapters of "
                      "linear modules are served",
                      readable(update.module), shape.to_string()));
    }
    const AdapterScaling scaling = adapter.files.config().scaling(path);
    if (update.a.shape[0] != layout->num_stacked * scaling.rank) {
      return invalid_argument(fmt::format(
          "lora_A of module {} has {} rows, but adapter_config.json gives it rank {}{}; the two "
          "files are not of one adapter",
          readable(update.module), update.a.shape[0], scaling.rank,
          layout->num_stacked > 1 ? fmt::format(" for each of {} experts", layout->num_stacked)
                                  : ""));
    }
    if (update.a.shape[1] != layout->K || update.b.shape[0] != layout->N) {
      return invalid_argument(fmt::format(
          "lora_A and lora_B of module {} are {} and {}, but the base's weight has N = {} and K = "
          "{}; merge into the adapter's own base{}",
          readable(update.module), update.a.shape.to_string(), update.b.shape.to_string(),
          layout->N, layout->K, base_name(adapter)));
    }
    const Factors factors{
        .a = keep(as_floats(update.a)),
        .b = keep(transposed(as_floats(update.b), update.b.shape[0], update.b.shape[1])),
        .rank = scaling.rank,
        .scale = scaling.scale * adapter.scale,
        .layout = *layout};
    if (stored && stored->shape == shape) {
      HEDDLE_RETURN_IF_ERROR(check_stored(*stored));
      add_whole(stored_name, factors);
      return ok_status();
    }
    return follow_weight_map(adapter, update.module, place, factors);
  }

  // Of the tensor that the adapter names, where the base has it.
  void add_whole(const std::string& name, const Factors& factors) {
    const Layout& layout = factors.layout;
    for (int64_t e = 0; e < layout.num_stacked; ++e) {
      add_rows(name, layout, e * layout.N * layout.K, layout.input_major ? 1 : layout.K, factors,
               e * layout.N, 1, layout.N);
    }
  }

  // Adds `num_rows` rows of B, from `b_row` of the stack on and `b_step` apart, to rows of a tensor
  // whose elements `layout` describes; they begin at `first_element`, `row_step` elements apart.
  void add_rows(const std::string& name, const Layout& layout, int64_t first_element,
                int64_t row_step, const Factors& factors, int64_t b_row, int64_t b_step,
                int64_t num_rows) {
    const int64_t N = factors.layout.N, K = factors.layout.K, E = factors.layout.num_stacked;
    const int64_t e = b_row / N;
    const Term::Factor a{.data = factors.a + e * factors.rank * K, .rank_step = K};
    const Term::Factor b{.data = factors.b + e * N + b_row % N, .rank_step = E * N, .step = b_step};
    Term term{.outer = b,
              .inner = a,
              .rank = factors.rank,
              .scale = factors.scale,
              .first_element = first_element,
              .outer_count = num_rows,
              .outer_step = row_step,
              .inner_count = K};
    if (layout.input_major) {
      std::swap(term.outer, term.inner);
      std::swap(term.outer_count, term.inner_count);
      term.inner_step = row_step;
      term.outer_step = layout.N;
    }
    merged_.terms_[name].push_back(term);
  }

  // The rows of ours that the adapter's tensor would have become, in the tensors that are there.
  Status follow_weight_map(const ScaledAdapter& adapter, const std::string& module,
                           const Place& place, const Factors& factors) {
    const Assembly* const stored = place.spec == nullptr ? nullptr : stored_assembly(*place.spec);
    if (stored == nullptr) return no_place(adapter, module);
    for (const HubPiece& piece : *stored) {
      const auto weight = merged_.base_->find({.name = piece.tensor.name, .shape = {}});
      const auto layout = Layout::of(piece.tensor.shape, piece.form);
      if (!weight || weight->shape != piece.tensor.shape || !layout) continue;
      for (const RowRun& to : piece.runs) {
        for (const RowRun& from : place.piece->runs) {
          HEDDLE_RETURN_IF_ERROR(follow_runs(*weight, *layout, to, factors, from));
        }
      }
    }
    return ok_status();
  }

  Status follow_runs(const StoredWeight& weight, const Layout& layout, const RowRun& to,
                     const Factors& factors, const RowRun& from) {
    HEDDLE_CHECK_EQ(layout.K, factors.layout.K);
    int64_t row = std::max(to.target_row, from.target_row);
    const int64_t end = std::min(to.target_row + to.num_rows, from.target_row + from.num_rows);
    if (row >= end) return ok_status();
    HEDDLE_RETURN_IF_ERROR(check_stored(weight));
    // Rows that end within a matrix of a stack, of B or of the tensor.
    const auto rows_left = [](int64_t at, int64_t step, int64_t N) {
      return (N - 1 - at % N) / step + 1;
    };
    while (row < end) {
      const int64_t b_row = from.source_row + (row - from.target_row) * from.source_step;
      const int64_t at = to.source_row + (row - to.target_row) * to.source_step;
      const int64_t count =
          std::min({end - row, rows_left(b_row, from.source_step, factors.layout.N),
                    rows_left(at, to.source_step, layout.N)});
      const int64_t first =
          layout.input_major ? at / layout.N * layout.N * layout.K + at % layout.N : at * layout.K;
      add_rows(std::string(weight.name), layout, first,
               to.source_step * (layout.input_major ? 1 : layout.K), factors, b_row,
               from.source_step, count);
      row += count;
    }
    return ok_status();
  }

  // The layout of a weight that the base stores; null where it stores none in plain numbers.
  [[nodiscard]] const Assembly* stored_assembly(const WeightSpec& spec) const {
    for (const Assembly& assembly : spec.alternatives) {
      for (const HubPiece& piece : assembly) {
        const auto stored = merged_.base_->find({.name = piece.tensor.name, .shape = {}});
        if (stored && stored->shape == piece.tensor.shape) return &assembly;
      }
    }
    return nullptr;
  }

  static Status check_stored(const StoredWeight& stored) {
    if (stored.dtype && is_convertible(*stored.dtype) && !stored.blocks) return ok_status();
    return unimplemented(fmt::format(
        "tensor {} of the base is stored as {}; merge into the model before it was quantised, then "
        "quantise the result",
        readable(stored.name), stored.stored_dtype));
  }

  // A weight of the base that is saved with the adapter must be the base's.
  Status check_saved(const SavedBaseWeight& saved) {
    const std::string name = saved.module + ".weight";
    const std::optional<Place> place = find_place(name);
    const std::string stored_name =
        place && place->piece != nullptr ? place->piece->tensor.name : name;
    const auto stored = merged_.base_->find({.name = stored_name, .shape = {}});
    if (!stored || !stored->dtype || !is_convertible(*stored->dtype)) return ok_status();
    if (stored->shape == saved.weight.shape && equals(saved.weight, *stored)) return ok_status();
    return invalid_argument(fmt::format(
        "{}.base_layer.weight differs from the base's {}: the adapter is of another base, or has "
        "trained this weight, which is not served; merge it in PEFT (merge_and_unload(), "
        "save_pretrained())",
        saved.module, readable(stored_name)));
  }

  // Whether both have the same numbers, in the narrower dtype of the two.
  [[nodiscard]] bool equals(const TensorView& saved, const StoredWeight& stored) const {
    const DType narrow = saved.dtype == DType::kF32 ? *stored.dtype : saved.dtype;
    const auto num_bytes = static_cast<size_t>(bytes_of(narrow, saved.num_elements()));
    std::vector<std::byte> ours(num_bytes), theirs(num_bytes);
    merged_.base_->read(stored, 0, saved.num_elements(), narrow, ours.data());
    convert_elements(saved.data, saved.dtype, theirs.data(), narrow, saved.num_elements());
    return ours == theirs;
  }

  // Of a tensor's name. None: neither the weight map nor the base has it.
  [[nodiscard]] std::optional<Place> find_place(const std::string& name) const {
    for (const std::string& spelled : {name, canonical(name)}) {
      if (const auto found = places_.find(spelled); found != places_.end()) return found->second;
    }
    const auto stored = merged_.base_->find({.name = name, .shape = {}});
    // A head that is stored beside tied embeddings is not read.
    if (!stored || name == "lm_head.weight") return std::nullopt;
    return Place{};
  }

  [[nodiscard]] Status no_place(const ScaledAdapter& adapter, const std::string& module) const {
    for (const std::string_view ending : {".qweight", ".weight_packed", ".weight_scale",
                                          ".weight_scale_inv", ".gate_up_proj_blocks"}) {
      for (const std::string& spelled : {module, canonical(module)}) {
        const std::string name = spelled + std::string(ending);
        if (!merged_.base_->find({.name = name, .shape = {}})) continue;
        return unimplemented(
            fmt::format("module {} is quantised in the base, which has {}; merge into the model "
                        "before it was quantised, then quantise the result",
                        readable(module), readable(name)));
      }
    }
    if (canonical(module) == "lm_head") {
      return unimplemented(
          "module \"lm_head\" has no weight of its own: the base's head is its embedding "
          "(tie_word_embeddings), which an adapter would change, too; train one without lm_head");
    }
    return invalid_argument(
        fmt::format("module {} has no weight in the base; merge into the adapter's own base{}",
                    readable(module), base_name(adapter)));
  }

  static std::string base_name(const ScaledAdapter& adapter) {
    const std::string& name = adapter.files.config().base_model();
    return name.empty() ? "" : fmt::format(", {}", readable(name));
  }

  const float* keep(std::vector<float> values) {
    merged_.factors_.push_back(std::move(values));
    return merged_.factors_.back().data();
  }

  MergedWeights& merged_;
  std::unordered_map<std::string, Place> places_;
};

MergedWeights::MergedWeights(std::unique_ptr<const WeightSource> base) : base_(std::move(base)) {}

MergedWeights::~MergedWeights() = default;

Result<std::unique_ptr<const MergedWeights>> MergedWeights::create(
    std::unique_ptr<const WeightSource> base, std::span<const WeightSpec> specs,
    std::span<const ScaledAdapter> adapters) {
  auto merged = std::unique_ptr<MergedWeights>(new MergedWeights(std::move(base)));
  Placer placer(*merged, specs);
  for (const ScaledAdapter& adapter : adapters) {
    HEDDLE_RETURN_IF_ERROR(placer.place(adapter));
    for (std::string& note : adapter.files.notes()) merged->notes_.push_back(std::move(note));
  }
  return std::unique_ptr<const MergedWeights>(std::move(merged));
}

std::optional<StoredWeight> MergedWeights::find(const WeightRequest& request) const {
  std::optional<StoredWeight> stored = base_->find(request);
  if (stored && changes(stored->name)) stored->data = nullptr;
  return stored;
}

std::vector<std::string> MergedWeights::notes() const {
  std::vector<std::string> notes = base_->notes();
  notes.insert(notes.end(), notes_.begin(), notes_.end());
  return notes;
}

void MergedWeights::read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
                         void* target) const {
  const StoredWeight stored =
      *base_->find({.name = weight.name, .shape = weight.shape, .initial = weight.initial});
  const auto terms = terms_.find(weight.name);
  if (terms == terms_.end()) return base_->read(stored, first, count, dtype, target);
  constexpr int64_t kAtOnce = 4096;
  float numbers[kAtOnce];
  double exact[kAtOnce];
  std::vector<double> sums;
  auto* out = static_cast<std::byte*>(target);
  for (int64_t done = 0; done < count; done += kAtOnce) {
    const int64_t num = std::min(kAtOnce, count - done);
    base_->read(stored, first + done, num, DType::kF32, numbers);
    std::copy_n(numbers, num, exact);
    for (const Term& term : terms->second) term.add(first + done, num, exact, sums);
    std::transform(exact, exact + num, numbers, [](double x) { return static_cast<float>(x); });
    convert_elements(numbers, DType::kF32, out + bytes_of(dtype, done), dtype, num);
  }
}

}  // namespace heddle::checkpoint
