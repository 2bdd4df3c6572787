// SPDX-License-Identifier: Apache-2.0
// Normalizer changes text before it is split: the "normalizer" of a tokenizer file, as a flat list
// of steps. The Unicode normal forms are the most frequent ones.
//
// Threading: a Normalizer is built by one thread, then immutable and thread-safe with one
// RegexScratch per call; the free functions have no state.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/cancellation.h"
#include "tokenizer/regex.h"

namespace heddle::tokenizer {

// The four normal forms of Unicode Standard Annex 15, from utf8proc's tables.
//
// utf8proc_map() sorts a run of n combining marks in O(n^2), so a prompt of 80 kB can take seconds.
// Here the text is normalised in runs that end where no character interacts with the next one, and
// the marks of a run are sorted in linear time. The result is the same.
//
// Cost: O(bytes). A look at the text proves most of it normal already (about 1 GB/s for ASCII).
// Memory: one run, of a few kB unless the text has a longer run of marks.
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// True when `text` is certainly in the form already; false says nothing.
[[nodiscard]] bool is_surely_normal(std::string_view text, NormalForm form);

// `text` is valid UTF-8.
[[nodiscard]] std::string to_normal_form(std::string_view text, NormalForm form);

// False: the rest of the text is not needed.
using PartFunction = std::function<bool(std::string_view part)>;

// Appends the normal form of `text` to `out` and shows it to `on_part` (may be empty) a few kB at a
// time. False when `on_part` or `poll` ended it early.
[[nodiscard]] bool append_normal_form(std::string_view text, NormalForm form, std::string& out,
                                      CancellationPoll& poll, const PartFunction& on_part);

// Characters that NFC neither changes nor combines with the character before them. Conservative:
// the scripts most text is written in, checked against utf8proc by the test.
[[nodiscard]] bool is_inert_under_nfc(char32_t code_point);

struct PrependStep {  // prepends `text` to every text that is not empty
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

struct StripAccentsStep {};  // drops combining marks; follows NFD

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
