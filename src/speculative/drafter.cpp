// SPDX-License-Identifier: Apache-2.0
#include "speculative/drafter.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/choice_names.h"
#include "speculative/ngram_drafter.h"

namespace heddle {

namespace {

constexpr ChoiceNames<DraftAlgorithm, 8> kNames = {{
    {"none", DraftAlgorithm::kNone},
    {"auto", DraftAlgorithm::kAuto},
    {"ngram", DraftAlgorithm::kNgram},
    {"mtp", DraftAlgorithm::kMtp},
    {"nextn", DraftAlgorithm::kMtp},
    {"eagle", DraftAlgorithm::kEagle},
    {"eagle3", DraftAlgorithm::kEagle3},
    {"standalone", DraftAlgorithm::kStandalone},
}};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::string_view to_string(DraftAlgorithm algorithm) { return name_of(kNames, algorithm); }

Result<DraftAlgorithm> parse_draft_algorithm(std::string_view name) {
  for (const auto& [spelling, algorithm] : kNames) {
    if (std::ranges::equal(name, spelling, {}, lower)) return algorithm;
  }
  return invalid_argument(
      fmt::format("speculative algorithm \"{}\" is not served; choose one of auto, none, ngram, "
                  "mtp, eagle, eagle3, standalone",
                  name));
}

}  // namespace heddle

namespace heddle::speculative {

std::unique_ptr<Drafter> make_drafter(const SpeculativeOptions& options) {
  if (options.algorithm == DraftAlgorithm::kNgram) {
    return std::make_unique<NgramDrafter>(options.eagle_topk);
  }
  return nullptr;
}

}  // namespace heddle::speculative
