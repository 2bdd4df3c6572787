// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/placed_adapters.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/adapter_places.h"
#include "checkpoint/convert.h"
#include "checkpoint/readable.h"
#include "core/check.h"

namespace heddle::checkpoint {

namespace {

// The name of the head in every family's weight map. A model without a head uses its embedding as
// head.
constexpr std::string_view kHead = "lm_head";

std::vector<float> as_floats(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.num_elements()));
  convert_elements(view.data, view.dtype, values.data(), DType::kF32, view.num_elements());
  return values;
}

// Transposes [rows, columns] to [columns, rows].
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

// Whether both tensors contain a common row of the model's weight.
bool shares_rows(const HubPiece& one, const HubPiece& other) {
  return std::ranges::any_of(one.runs, [&](const RowRun& a) {
    return std::ranges::any_of(other.runs, [&](const RowRun& b) {
      return a.target_row < b.target_row + b.num_rows && b.target_row < a.target_row + a.num_rows;
    });
  });
}

// The path of the module or stacked parameter to which the tensor belongs: its name without
// ".weight".
std::string module_of_tensor(std::string_view tensor) {
  constexpr std::string_view kEnd = ".weight";
  return std::string(tensor.substr(0, tensor.size() - (tensor.ends_with(kEnd) ? kEnd.size() : 0)));
}

}  // namespace

// The shape of a linear weight, or of a stack of them, and the order of its elements.
struct StackLayout {
  int64_t num_stacked = 1;
  int64_t N = 0;
  int64_t K = 0;
  bool input_major = false;  // each matrix is stored as [K, N]

  // Returns none if the tensor is neither a matrix nor a stack of matrices.
  static std::optional<StackLayout> of(const Shape& shape, RowForm form) {
    const int rank = shape.rank();
    if (rank < 2 || rank > 3 || form == RowForm::kElement) return std::nullopt;
    const bool input_major = form == RowForm::kInputMajor;
    return StackLayout{.num_stacked = rank == 3 ? shape[0] : 1,
                       .N = shape[input_major ? rank - 1 : rank - 2],
                       .K = shape[input_major ? rank - 2 : rank - 1],
                       .input_major = input_major};
  }
};

// Finds the tensors that adapters change and fills in PlacedAdapters.
class PlacedAdapters::Placer {
 public:
  Placer(PlacedAdapters& placed, const WeightSource& base, std::span<const WeightSpec> specs)
      : placed_(placed), base_(base), places_(specs) {
    has_head_ = std::ranges::any_of(specs, [](const auto& spec) { return spec.name == kHead; });
  }

  Status place(size_t index) {
    adapter_index_ = index;
    const ScaledAdapter& adapter = placed_.adapters_[index];
    const std::vector<AdapterUpdate>& updates = adapter.files.updates();
    for (size_t begin = 0; begin < updates.size();) {
      size_t end = begin + 1;
      while (end < updates.size() && updates[end].module == updates[begin].module) ++end;
      const Status status = place_module(adapter, std::span(updates).subspan(begin, end - begin));
      if (!status.ok()) return status.with_context(adapter.files.folder().string());
      begin = end;
    }
    for (const AdapterTensor& tensor : adapter.files.tensors()) {
      const Status status = tensor.kind == AdapterTensor::Kind::kSavedBase
                                ? places_.check_saved(tensor, base_)
                                : place_tensor(adapter, tensor);
      if (!status.ok()) return status.with_context(adapter.files.folder().string());
    }
    return ok_status();
  }

 private:
  // The low-rank factors of an update to one matrix or one stack of matrices.
  struct Factors {
    const float* a = nullptr;  // [num_stacked * rank, K]
    // [rank * num_stacked, N]: B transposed.
    const float* b = nullptr;
    int64_t rank = 0;
    double scale = 0;
    StackLayout layout;
  };

  // Places the updates of one module; `updates` begins with the innermost wrapper.
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

  // `name` is the name of the tensor. `path` is the text that rank_pattern and alpha_pattern are
  // matched with.
  Status place_update(const ScaledAdapter& adapter, const AdapterUpdate& update,
                      const std::string& name, const std::string& path) {
    const TensorPlace place = *find_place(name);
    std::string stored_name = place.piece != nullptr ? place.piece->tensor.name : name;
    const std::optional<StoredWeight> stored = base_.find({.name = stored_name, .shape = {}});
    const Shape shape = place.piece != nullptr ? place.piece->tensor.shape : stored->shape;
    const auto layout = StackLayout::of(
        shape, place.piece != nullptr ? place.piece->form : RowForm::kLastDimension);
    if (!layout) {
      return invalid_argument(
          fmt::format("module {} is a tensor {} in the base; only adapters of linear modules are "
                      "merged",
                      readable(update.module), shape.to_string()));
    }
    const AdapterScaling scaling = adapter.files.config().scaling(path);
    // The table of an embedding is [V, H], so A has V columns.
    const TensorView& of_columns = update.of_embedding ? update.b : update.a;
    const TensorView& of_rows = update.of_embedding ? update.a : update.b;
    const int64_t K = of_columns.shape[update.of_embedding ? 0 : 1];
    const int64_t N = of_rows.shape[update.of_embedding ? 1 : 0];
    if (update.of_embedding && is_head_too(place)) {
      return unimplemented(fmt::format(
          "module {} is also the base's head (tie_word_embeddings), which a merged update would "
          "change, too; train an adapter without it",
          readable(update.module)));
    }
    if (update.a.shape[0] != layout->num_stacked * scaling.rank) {
      return invalid_argument(fmt::format(
          "lora_A of module {} has {} rows, but adapter_config.json gives it rank {}{}; the two "
          "files are not of one adapter",
          readable(update.module), update.a.shape[0], scaling.rank,
          layout->num_stacked > 1 ? fmt::format(" for each of {} experts", layout->num_stacked)
                                  : ""));
    }
    if (K != layout->K || N != layout->N) {
      return invalid_argument(fmt::format(
          "lora_A and lora_B of module {} are {} and {}, but the base's weight has N = {} and K = "
          "{}; merge into the adapter's own base{}",
          readable(update.module), update.a.shape.to_string(), update.b.shape.to_string(),
          layout->N, layout->K, base_name(adapter)));
    }
    const auto by_rank = [](const TensorView& view, bool is_transposed) {
      return is_transposed ? transposed(as_floats(view), view.shape[0], view.shape[1])
                           : as_floats(view);
    };
    const Factors factors{.a = keep(by_rank(of_columns, update.of_embedding)),
                          .b = keep(by_rank(of_rows, !update.of_embedding)),
                          .rank = scaling.rank,
                          .scale = scaling.scale * adapter.scale,
                          .layout = *layout};
    if (stored && stored->shape == shape) {
      HEDDLE_RETURN_IF_ERROR(check_stored(*stored));
      HEDDLE_ASSIGN_OR_RETURN(WeightChange* const change,
                              change_of(stored_name, !!update.magnitude));
      add_whole(stored_name, factors);
      if (!update.magnitude) return ok_status();
      if (layout->input_major || layout->num_stacked > 1 || update.of_embedding) {
        return unimplemented(fmt::format(
            "module {} has a magnitude (DoRA), which is merged into plain linear modules only; "
            "merge the adapter in PEFT (merge_and_unload(), save_pretrained())",
            readable(update.module)));
      }
      change->row_width = layout->K;
      change->row_lengths = as_floats(*update.magnitude);
      return ok_status();
    }
    if (update.magnitude) return no_place(adapter, update.module);
    return follow_weight_map(adapter, update.module, place, factors);
  }

  // Returns the change of a tensor and creates it if there is none. Error: another adapter already
  // changes the tensor, and one of the two changes cannot be summed (`is_exclusive`).
  Result<WeightChange*> change_of(const std::string& name, bool is_exclusive) {
    const auto [found, is_new] = placed_.changes_.try_emplace(name);
    WeightChange& change = found->second;
    const bool is_of_another = !is_new && change.adapter != adapter_index_;
    if (is_of_another && (is_exclusive || change.is_exclusive)) {
      return invalid_argument(fmt::format(
          "tensor {} is changed by two adapters, and one of the changes cannot be added to the "
          "other (DoRA, or a tensor that is saved whole); merge one of the adapters",
          readable(name)));
    }
    if (is_exclusive && placed_.adapters_[adapter_index_].scale != 1) {
      return invalid_argument(fmt::format(
          "the scale is {}, but the adapter replaces numbers of tensor {} (DoRA, or a tensor that "
          "is saved whole), which no scale applies to; leave it at 1",
          placed_.adapters_[adapter_index_].scale, readable(name)));
    }
    change.adapter = adapter_index_;
    change.is_exclusive = change.is_exclusive || is_exclusive;
    return &change;
  }

  // Places a tensor that replaces the base's tensor, replaces some of its rows, or is added to it.
  Status place_tensor(const ScaledAdapter& adapter, const AdapterTensor& saved) {
    const std::string name = saved.module + "." + saved.parameter;
    const std::optional<TensorPlace> place = find_place(name);
    if (!place) {
      if (saved.parameter == "weight") return no_place(adapter, saved.module);
      return unimplemented(
          fmt::format("module {} has a bias in the adapter, but none in the base; merge the "
                      "adapter in PEFT (merge_and_unload(), save_pretrained())",
                      readable(saved.module)));
    }
    const std::string stored_name = place->piece != nullptr ? place->piece->tensor.name : name;
    const auto stored = base_.find({.name = stored_name, .shape = {}});
    if (!stored) return no_place(adapter, saved.module);
    HEDDLE_RETURN_IF_ERROR(check_stored(*stored));
    if (saved.kind == AdapterTensor::Kind::kTokenRows) {
      HEDDLE_RETURN_IF_ERROR(check_no_stored_head(*place));
      return place_rows(adapter, saved, *stored);
    }
    if (stored->shape != saved.tensor.shape) {
      return invalid_argument(fmt::format(
          "{} of the adapter is {}, the base's {} is {}; merge into the adapter's own base{}",
          readable(name), saved.tensor.shape.to_string(), readable(stored_name),
          stored->shape.to_string(), base_name(adapter)));
    }
    if (saved.kind == AdapterTensor::Kind::kAddedBias) return place_bias(adapter, saved, *stored);
    if (is_head_too(*place)) {
      return unimplemented(fmt::format(
          "module {} is saved whole, and is also the base's head (tie_word_embeddings), which "
          "would change, too; merge the adapter in PEFT (merge_and_unload(), save_pretrained())",
          readable(saved.module)));
    }
    HEDDLE_ASSIGN_OR_RETURN(WeightChange* const change,
                            change_of(stored_name, /*is_exclusive=*/true));
    change->replacement = saved.tensor;
    return ok_status();
  }

  Status place_bias(const ScaledAdapter& adapter, const AdapterTensor& saved,
                    const StoredWeight& stored) {
    HEDDLE_ASSIGN_OR_RETURN(WeightChange* const change,
                            change_of(std::string(stored.name), /*is_exclusive=*/false));
    const float* const values = keep(as_floats(saved.tensor));
    const float* const one = keep({1});
    change->terms.push_back(
        {.outer = {.data = one},
         .inner = {.data = values},
         .rank = 1,
         .scale = adapter.files.config().scaling(saved.module).scale * adapter.scale,
         .outer_count = 1,
         .inner_count = saved.tensor.num_elements()});
    return ok_status();
  }

  Status place_rows(const ScaledAdapter& adapter, const AdapterTensor& saved,
                    const StoredWeight& stored) {
    const std::vector<int64_t> tokens = adapter.files.config().trained_tokens(saved.module);
    const Shape& shape = saved.tensor.shape;
    const bool fits = stored.shape.rank() == 2 && shape.rank() == 2 &&
                      shape[0] == std::ssize(tokens) && shape[1] == stored.shape[1];
    if (!fits) {
      return invalid_argument(
          fmt::format("the rows of tokens of module {} are {}, but trainable_token_indices has {} "
                      "tokens and the base's weight is {}; merge into the adapter's own base{}",
                      readable(saved.module), shape.to_string(), tokens.size(),
                      stored.shape.to_string(), base_name(adapter)));
    }
    HEDDLE_ASSIGN_OR_RETURN(WeightChange* const change,
                            change_of(std::string(stored.name), /*is_exclusive=*/true));
    const std::vector<float> values = as_floats(saved.tensor);
    change->row_width = shape[1];
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] >= stored.shape[0]) {
        return invalid_argument(
            fmt::format("trainable_token_indices has token {}, the base has {}; merge into the "
                        "adapter's own base{}",
                        tokens[i], stored.shape[0], base_name(adapter)));
      }
      const auto row = values.begin() + static_cast<int64_t>(i) * shape[1];
      change->rows[tokens[i]] = {row, row + shape[1]};
    }
    return ok_status();
  }

  // Adds the update to the tensor that the adapter names, which the base stores in that layout.
  void add_whole(const std::string& name, const Factors& factors) {
    const StackLayout& layout = factors.layout;
    for (int64_t e = 0; e < layout.num_stacked; ++e) {
      add_rows(name, layout, e * layout.N * layout.K, layout.input_major ? 1 : layout.K, factors,
               e * layout.N, 1, layout.N);
    }
  }

  // Adds `num_rows` rows of B to rows of a tensor. The rows of B begin at `b_row` of the stack and
  // are `b_step` apart. The tensor's rows begin at element `first_element` and are `row_step`
  // elements apart; `layout` describes its elements.
  void add_rows(const std::string& name, const StackLayout& layout, int64_t first_element,
                int64_t row_step, const Factors& factors, int64_t b_row, int64_t b_step,
                int64_t num_rows) {
    const int64_t N = factors.layout.N, K = factors.layout.K, E = factors.layout.num_stacked;
    const int64_t e = b_row / N;
    const LowRankTerm::Factor a{.data = factors.a + e * factors.rank * K, .rank_step = K};
    const LowRankTerm::Factor b{
        .data = factors.b + e * N + b_row % N, .rank_step = E * N, .step = b_step};
    LowRankTerm term{.outer = b,
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
    placed_.changes_.at(name).terms.push_back(term);
  }

  // Adds the update if the base stores another layout than the one that the adapter names. The
  // weight map gives the row of the model's weight for each row of B, and the tensors in which the
  // base stores that row.
  Status follow_weight_map(const ScaledAdapter& adapter, const std::string& module,
                           const TensorPlace& place, const Factors& factors) {
    if (place.spec == nullptr) return no_place(adapter, module);
    const Assembly* const stored = stored_assembly(*place.spec);
    if (stored == nullptr) return not_stored(adapter, module, place);
    for (const HubPiece& piece : *stored) {
      if (!shares_rows(piece, *place.piece)) continue;
      const auto weight = base_.find({.name = piece.tensor.name, .shape = {}});
      const auto layout = StackLayout::of(piece.tensor.shape, piece.form);
      if (!weight || weight->shape != piece.tensor.shape || !layout) {
        return no_place(adapter, module_of_tensor(piece.tensor.name));
      }
      for (const RowRun& to : piece.runs) {
        for (const RowRun& from : place.piece->runs) {
          HEDDLE_RETURN_IF_ERROR(follow_runs(*weight, *layout, to, factors, from));
        }
      }
    }
    return ok_status();
  }

  // The error for an update of a weight that the base has in none of the weight map's layouts. If
  // the base has a part of the weight quantised, the error names that module.
  [[nodiscard]] Status not_stored(const ScaledAdapter& adapter, const std::string& module,
                                  const TensorPlace& place) const {
    for (const Assembly& assembly : place.spec->alternatives) {
      for (const HubPiece& piece : assembly) {
        const std::string owner = module_of_tensor(piece.tensor.name);
        if (shares_rows(piece, *place.piece) && quantised_tensor(owner)) {
          return no_place(adapter, owner);
        }
      }
    }
    return no_place(adapter, module);
  }

  Status follow_runs(const StoredWeight& weight, const StackLayout& layout, const RowRun& to,
                     const Factors& factors, const RowRun& from) {
    HEDDLE_CHECK_EQ(layout.K, factors.layout.K);
    int64_t row = std::max(to.target_row, from.target_row);
    const int64_t end = std::min(to.target_row + to.num_rows, from.target_row + from.num_rows);
    if (row >= end) return ok_status();
    HEDDLE_RETURN_IF_ERROR(check_stored(weight));
    HEDDLE_RETURN_IF_ERROR(change_of(std::string(weight.name), /*is_exclusive=*/false).status());
    // The number of rows from `at` to the end of its matrix in a stack; used for B and for the
    // tensor.
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

  // The layout in which the base stores a weight in plain (not quantised) numbers; null if there is
  // none.
  [[nodiscard]] const Assembly* stored_assembly(const WeightSpec& spec) const {
    for (const Assembly& assembly : spec.alternatives) {
      for (const HubPiece& piece : assembly) {
        const auto stored = base_.find({.name = piece.tensor.name, .shape = {}});
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

  // Whether the tensor is the embedding of a model that uses its embedding also as head.
  [[nodiscard]] bool is_head_too(const TensorPlace& place) const {
    return place.spec != nullptr && place.spec->name == kEmbeddingWeight && !has_head_;
  }

  // Checks that the base stores no head beside an embedding that is its head. The stored head would
  // keep its rows, and a head that differs from the embedding is used instead of it.
  [[nodiscard]] Status check_no_stored_head(const TensorPlace& place) const {
    if (!is_head_too(place)) return ok_status();
    for (const std::string_view name : base_.names()) {
      if (canonical_name(name) != "lm_head.weight") continue;
      return unimplemented(fmt::format(
          "rows of the embedding change, which is also the base's head (tie_word_embeddings), but "
          "the base stores {}, too; remove this tensor from the base",
          readable(name)));
    }
    return ok_status();
  }

  // Finds the tensor called `name`. Returns none if neither the weight map nor the base has it.
  [[nodiscard]] std::optional<TensorPlace> find_place(const std::string& name) const {
    if (const TensorPlace* const place = places_.find(name)) return *place;
    const auto stored = base_.find({.name = name, .shape = {}});
    // An LM head in the files is ignored if embeddings are tied.
    if (!stored || (!has_head_ && canonical_name(name) == "lm_head.weight")) return std::nullopt;
    return TensorPlace{};
  }

  // The name of a tensor of the base that shows that `module` is quantised; none if it is not.
  [[nodiscard]] std::optional<std::string> quantised_tensor(const std::string& module) const {
    for (const std::string_view ending : {".qweight", ".weight_packed", ".weight_scale",
                                          ".weight_scale_inv", ".gate_up_proj_blocks", "_blocks"}) {
      for (const std::string& spelled : {module, canonical_name(module)}) {
        std::string name = spelled + std::string(ending);
        if (base_.find({.name = name, .shape = {}})) return name;
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] Status no_place(const ScaledAdapter& adapter, const std::string& module) const {
    if (const auto name = quantised_tensor(module)) {
      return unimplemented(
          fmt::format("module {} is quantised in the base, which has {}; merge into the model "
                      "before it was quantised, then quantise the result",
                      readable(module), readable(*name)));
    }
    if (!has_head_ && canonical_name(module) == "lm_head") {
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
    placed_.factors_.push_back(std::move(values));
    return placed_.factors_.back().data();
  }

  PlacedAdapters& placed_;
  const WeightSource& base_;
  size_t adapter_index_ = 0;
  bool has_head_ = false;  // whether the model has a head that is not its embedding
  AdapterPlaces places_;
};

Result<PlacedAdapters> PlacedAdapters::place(std::vector<ScaledAdapter> adapters,
                                             const WeightSource& base,
                                             std::span<const WeightSpec> specs) {
  PlacedAdapters placed(std::move(adapters));
  Placer placer(placed, base, specs);
  for (size_t i = 0; i < placed.adapters_.size(); ++i) HEDDLE_RETURN_IF_ERROR(placer.place(i));
  return placed;
}

std::vector<std::string> PlacedAdapters::notes() const {
  std::vector<std::string> notes;
  for (const ScaledAdapter& adapter : adapters_) {
    for (std::string& note : adapter.files.notes()) notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace heddle::checkpoint
