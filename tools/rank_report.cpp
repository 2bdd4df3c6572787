// SPDX-License-Identifier: Apache-2.0
#include "tools/rank_report.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "models/rank_check.h"
#include "tools/cli/output_file.h"
#include "tools/cli/table.h"

namespace heddle::tools {

namespace {

using checkpoint::CutKind;
using checkpoint::Ranks;
using checkpoint::WeightShare;
using checkpoint::WeightSpec;

std::string name_of_cut(const WeightSpec& spec, const std::optional<WeightShare>& share,
                        const std::vector<Shape>& shapes) {
  if (!share) return "whole";
  const bool experts = spec.cut.kind == CutKind::kWholeExperts;
  std::string name = share->dimension == (experts ? 2 : 1) ? "columns" : "rows";
  if (experts && share->dimension == 0) return "experts";
  if (experts) name += " of each expert";
  int64_t sum = 0;
  for (const Shape& shape : shapes) sum += shape[share->dimension];
  return name + (sum > spec.shape[share->dimension] ? ", some on several ranks" : "");
}

// "[64, 8]" if all ranks have one shape, otherwise each with its number of ranks, in their order:
// "2 x [64, 8], 1 x [6, 8], 1 x [0, 8]".
std::string text_of(const std::vector<Shape>& shapes) {
  std::vector<std::string> runs;
  for (auto begin = shapes.begin(); begin != shapes.end();) {
    const auto end =
        std::find_if(begin, shapes.end(), [&](const Shape& shape) { return shape != *begin; });
    if (begin == shapes.begin() && end == shapes.end()) return begin->to_string();
    runs.push_back(fmt::format("{} x {}", end - begin, begin->to_string()));
    begin = end;
  }
  return fmt::format("{}", fmt::join(runs, ", "));
}

std::string mib_of(int64_t bytes) { return fmt::format("{:.2f} MiB", mebibytes(bytes)); }

}  // namespace

Result<RankReport> report_on_ranks(const models::Model& model,
                                   const checkpoint::WeightSource& source,
                                   const checkpoint::LoadOptions& options, const Ranks& ranks) {
  HEDDLE_RETURN_IF_ERROR(models::check_ranks(model, ranks));
  RankReport report{.ranks = ranks};
  const std::vector<WeightSpec> specs = model.weight_specs();
  const std::vector<Status> statuses = models::legal_ranks(model, ranks.exact);
  for (size_t i = 0; i < statuses.size(); ++i) {
    const auto count = static_cast<int64_t>(i) + 1;
    if (statuses[i].ok()) {
      report.legal.push_back(count);
    } else {
      report.refused.emplace(count, statuses[i].message());
    }
  }
  std::vector<std::vector<WeightSpec>> slices;  // slices of each rank
  for (int64_t rank = 0; rank < ranks.count; ++rank) {
    HEDDLE_ASSIGN_OR_RETURN(std::vector<WeightSpec> own, checkpoint::sliced(specs, rank, ranks));
    HEDDLE_ASSIGN_OR_RETURN(const int64_t bytes, checkpoint::bytes_to_load(source, own, options));
    report.rank_bytes.push_back(bytes);
    slices.push_back(std::move(own));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    SharedWeight weight{.name = specs[i].name};
    for (const std::vector<WeightSpec>& own : slices) weight.shapes.push_back(own[i].shape);
    HEDDLE_ASSIGN_OR_RETURN(const auto share, checkpoint::share_of(specs[i], 0, ranks));
    weight.cut = name_of_cut(specs[i], share, weight.shapes);
    report.weights.push_back(std::move(weight));
  }
  return report;
}

std::string to_text(const RankReport& report) {
  Table weights({"weight", "cut", "shape of a rank"});
  for (const SharedWeight& weight : report.weights) {
    weights.add({weight.name, weight.cut, text_of(weight.shapes)});
  }
  Table ranks({"rank", "weights"});
  for (size_t rank = 0; rank < report.rank_bytes.size(); ++rank) {
    ranks.add({std::to_string(rank), mib_of(report.rank_bytes[rank])});
  }
  std::string text = fmt::format("{}\n{}\nlegal: {} ranks\n", weights.to_string(),
                                 ranks.to_string(), fmt::join(report.legal, ", "));
  for (const auto& [count, reason] : report.refused)
    text += fmt::format("not {}: {}\n", count, reason);
  return text;
}

nlohmann::ordered_json to_json(const RankReport& report) {
  auto weights = nlohmann::ordered_json::array();
  for (const SharedWeight& weight : report.weights) {
    auto shapes = nlohmann::ordered_json::array();
    for (const Shape& shape : weight.shapes) {
      shapes.push_back(std::vector<int64_t>(shape.dims().begin(), shape.dims().end()));
    }
    weights.push_back({{"name", weight.name}, {"cut", weight.cut}, {"shapes", std::move(shapes)}});
  }
  nlohmann::ordered_json refused = nlohmann::ordered_json::object();
  for (const auto& [count, reason] : report.refused) refused[std::to_string(count)] = reason;
  return {{"ranks", report.ranks.count},   {"exact", report.ranks.exact},
          {"weights", std::move(weights)}, {"rank_bytes", report.rank_bytes},
          {"legal", report.legal},         {"refused", std::move(refused)}};
}

}  // namespace heddle::tools
