// SPDX-License-Identifier: Apache-2.0
// Normalizer changes text before it is split: the "normalizer" of a tokenizer file, as a flat list
// of steps.
//
// Threading: built by one thread, then immutable and thread-safe with one RegexScratch per call.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/cancellation.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/regex.h"

namespace heddle::tokenizer {

struct PrependStep {  // before every text that is not empty
  std::string text;
};

struct ReplaceStep {  // every match
  Regex pattern;
  std::string content;
};

struct LowercaseStep {};  // simple case mapping, one character at a time

struct StripStep {  // white space
  bool left = true;
  bool right = true;
};

struct StripAccentsStep {};  // drops combining marks; stands behind NFD

using NormalizerStep =
    std::variant<NormalForm, PrependStep, ReplaceStep, LowercaseStep, StripStep, StripAccentsStep>;

class Normalizer {
 public:
  template <typename Step>
  void add(Step step) {
    steps_.emplace_back(std::in_place_type<Step>, std::move(step));
  }

  // The normalised text: `text` itself when nothing changes, else a view of `buffer`. None when
  // `poll` or `on_part` ended it early.
  //
  // `on_part` (may be empty) sees the result grow where the last step is a normal form that changes
  // something; other steps finish first. False: the rest is not needed.
  [[nodiscard]] std::optional<std::string_view> apply(std::string_view text, std::string& buffer,
                                                      RegexScratch& scratch, CancellationPoll& poll,
                                                      const PartFunction& on_part) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace heddle::tokenizer
